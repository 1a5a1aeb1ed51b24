"""The coordinator's side: the server loop, what it believes and saves; `fedkoopman serve`."""
