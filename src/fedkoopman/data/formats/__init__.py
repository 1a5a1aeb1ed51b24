"""One module per data format; its name is the suffix, and it binds `FORMAT` (see `row_blocks`)."""
