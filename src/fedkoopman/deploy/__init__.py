"""Many machines: the same federation on Flower, with the data behind a site agent.

Flower carries bytes and knows who is online. What the bytes mean, when a slot ends and whose data
were used is decided here. The package itself imports nothing, as `fedkoopman --help` must load
neither Flower nor JAX.
"""
