"""Many machines: the same federation on Flower, with the data behind a site agent.

Flower carries bytes and knows who is online; what the bytes mean, when a slot ends and whose data
were spent is decided here. Nothing is imported by this package itself: `fedkoopman --help` must
not load Flower or JAX.
"""
