"""FedAvg by Flower alone: a process is started for every message, and loads JAX each time."""
