"""FedAvg-M as pure functions, and the engine that runs a whole federation in one process."""
