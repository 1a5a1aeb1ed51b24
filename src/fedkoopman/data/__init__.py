"""Sites' files: formats, segments, the time grid, and states made of them."""
