"""What a site's data and noise look like, in figures and in words."""
