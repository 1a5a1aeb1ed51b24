"""pykoopman's part of `measured.py`, run by the Python of its own environment.

.venv-pykoopman/bin/python benchmarks/pykoopman_driven.py GIVEN.npz MADE.npz
"""

import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")


def main() -> None:
    """Fit EDMDc, simulate in both ways, and leave the rows in a file."""
    data = dict(np.load(sys.argv[1]))
    import pykoopman
    from pykoopman.observables import Polynomial
    from pykoopman.regression import EDMDc

    z, u, known, inputs = (data[name] for name in ("z", "u", "known", "inputs"))
    delays, d, first = int(data["delays"]), known.shape[1], len(known)
    scale, drive = z.std(axis=0), u.std(axis=0)
    began = time.process_time()
    model = pykoopman.Koopman(observables=Polynomial(degree=int(data["degree"])), regressor=EDMDc())
    model.fit(z / scale, y=data["later"] / scale, u=u / drive)
    seconds = time.process_time() - began
    past = [known[first - 1 - i] for i in range(delays + 1)]
    window = np.concatenate([*past, *(inputs[first - 1 - i] for i in range(1, delays + 1))])
    ahead = inputs[first - 1 :] / drive
    with np.errstate(over="ignore", invalid="ignore"):
        once = model.simulate(window / scale, ahead, n_steps=len(ahead))
        anew, now = np.full((len(ahead), d), np.inf), window / scale
        # What `predict` does at every step, without its checks, which take most of the time.
        a, b, c = model.A, model.B, model.C
        functions = model.observables
        for k, v in enumerate(ahead):
            lifted = np.asarray(functions.transform(now[None]))[0]
            now = np.real(c @ (a @ lifted + b @ v))
            anew[k] = now[:d] * scale[:d]
            if not np.isfinite(anew[k]).all() or np.abs(anew[k]).max() > 1e6:
                anew[k:] = np.inf
                break
    once = np.real(np.asarray(once))[:, :d] * scale[:d]
    np.savez(sys.argv[2], seconds=seconds, once=once, anew=anew)


if __name__ == "__main__":
    main()
