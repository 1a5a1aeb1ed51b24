"""A site's side: the agent that holds the data, its store, its ledger; `fedkoopman join`."""
