"""Multi-Krum: the mean of those updates of a slot that are among the n − f best of all clients'."""

from fedkoopman.federation.aggregators.krum import Krum

AGGREGATOR = Krum("multi-krum", several=True)
