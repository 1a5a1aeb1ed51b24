"""The coordinator's side: the server loop, what it accepts and saves; `fedkoopman serve`."""
