"""pykoopman's part of `accuracy.py`, run by the Python of its own environment.

.venv-pykoopman/bin/python benchmarks/pykoopman_peer.py nndmd|kdmd GIVEN.npz MADE.npz
"""

import logging
import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")
EPOCHS = 30


def nndmd(train):
    """The autoencoder of 12 lifted coordinates, 30 epochs.

    States are standardised here: its own normalisation, row by row, would take most of the time.
    Its `fit` fails after training with any decoder but a linear one.
    """
    import torch
    from pykoopman.regression import NNDMD

    torch.manual_seed(0)
    d = train.shape[-1]
    model = NNDMD(
        look_forward=1,
        config_encoder={
            "input_size": d,
            "hidden_sizes": [32, 32],
            "output_size": 12,
            "activations": "tanh",
        },
        config_decoder={
            "input_size": 12,
            "hidden_sizes": [32, 32],
            "output_size": d,
            "activations": "linear",
        },
        batch_size=512,
        normalize=False,
        trainer_kwargs={
            "max_epochs": EPOCHS,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "enable_checkpointing": False,
        },
    )
    mean, std = train.reshape(-1, d).mean(axis=0), train.reshape(-1, d).std(axis=0)
    model.fit([(x - mean) / std for x in train])
    return lambda x, steps: np.asarray(model.predict((x - mean) / std, n=steps)) * std + mean


def kdmd(train):
    """Kernel DMD of rank 25 as kooplearn's `fit_time.py` calls it; one trajectory."""
    import pykoopman
    from pykoopman.regression import KDMD
    from sklearn.gaussian_process.kernels import RBF

    [x] = train
    regressor = KDMD(
        svd_rank=25,
        kernel=RBF(length_scale=np.sqrt(0.5 * x.shape[1])),
        forward_backward=False,
        tikhonov_regularization=1e-6,
    )
    model = pykoopman.Koopman(regressor=regressor)
    model.fit(x[:-1], x[1:])
    return lambda states, steps: np.real(np.asarray(model.predict(states)))


def main() -> None:
    """Fit, forecast, and leave the forecasts in a file."""
    what, given, made = sys.argv[1:]
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = np.load(given)
    import pykoopman  # noqa: F401  imports are not part of the time

    began = time.process_time()
    forecast = {"nndmd": nndmd, "kdmd": kdmd}[what](data["train"])
    seconds = time.process_time() - began
    found = {f"at_{h}": forecast(data["states"], int(h)) for h in data["horizons"]}
    np.savez(made, seconds=seconds, **found)


if __name__ == "__main__":
    main()
