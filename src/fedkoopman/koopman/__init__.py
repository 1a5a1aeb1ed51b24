"""The deep Koopman network: its weights, losses and training, and the model that users touch."""

from fedkoopman.koopman.model import DeepKoopman, load_model

__all__ = ["DeepKoopman", "load_model"]
