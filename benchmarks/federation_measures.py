"""What one process of `federation.py` measures: the peer, ours, the peak, one client's training."""

import resource
import statistics
import time


def paper_study(slots: int, seed: int, clients: int | None = None):
    import fedkoopman as fk

    study = fk.Study.paper_default(slots=slots, seed=seed)
    return study if clients is None else study.with_values({"clients.count": clients})


def timed(function, *arguments, **keywords):
    start = time.perf_counter()
    result = function(*arguments, **keywords)
    return time.perf_counter() - start, result


def measure_peer(task: dict) -> dict:
    """Seeds 0 … of the PyTorch program, one after the other."""
    import torch_federation

    runs = [
        torch_federation.run(seed, task["slots"], task["tuned"]) for seed in range(task["seeds"])
    ]
    return {
        "runs": runs,
        "seconds": sum(r["seconds"]["total"] for r in runs),
        "tail": {k: statistics.mean(r["tail"][k] for r in runs) for k in runs[0]["tail"]},
    }


def measure_ours(task: dict) -> dict:
    """The first call, then calls with other seeds in the same process."""
    import jax  # noqa: F401  (imports are not timed, on either side)

    import fedkoopman as fk

    call, seeds = fk.run, task["seeds"]
    cold, first = timed(call, paper_study(task["slots"], 0, task.get("clients")), seeds=seeds)
    tail = {k: first.summary[k]["mean"] for k in ("l1", "l2", "l3", "E")}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    del first
    warm = [
        timed(call, paper_study(task["slots"], k * seeds, task.get("clients")), seeds=seeds)[0]
        for k in range(1, 1 + task["repeats"])
    ]
    return {
        "cold": cold,
        "warm": statistics.median(warm) if warm else None,
        "every_warm": warm,
        "tail": tail,
        "gibibytes": memory,
    }


def measure_peak(task: dict) -> dict:
    """float32 multiply-adds per second of a large matrix product, the better of NumPy and JAX."""
    import jax
    import numpy as np

    best = {"numpy": 0.0, "jax": 0.0}
    product = jax.jit(lambda a, b: a @ b)
    for size in (1024, 2048):
        a, b = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
        da, db = jax.device_put(a), jax.device_put(b)
        product(da, db).block_until_ready()
        for _ in range(task["repeats"]):
            for name, took in (
                ("numpy", timed(np.matmul, a, b)[0]),
                ("jax", timed(lambda x, y: product(x, y).block_until_ready(), da, db)[0]),
            ):
                best[name] = max(best[name], 2 * size**3 / took / 1e9)
    return {"gflops": max(best.values()), **best}


def flops_per_sample(state: int, width: int, components: int) -> int:
    """Matrix products of one training step per pair of states; a product of n × k by k costs 2 n k.

    Forward: the encoder twice (x and its successor), K once, the decoder twice (of φ(x) and of
    K φ(x)). Backward: twice the forward, once for the weights and once for the inputs (the inputs
    of the first layer need none: 3 % too many at the default size). Biases, ReLU, losses and Adam
    are not counted.
    """
    coder = 2 * (state * width + width * components)
    return 3 * (4 * coder + 2 * components**2)


def measure_training(task: dict) -> dict:
    """One client's update: five segments of 300 states, ten epochs."""

    import fedkoopman as fk
    from fedkoopman.koopman.kinds.paper import PaperNetwork
    from fedkoopman.koopman.training import Training, client_update

    epochs, segments, steps, components = 10, 5, 300, 12
    architecture = PaperNetwork(
        state_dim=3,
        components=components,
        hidden_layers=1,
        width=task["width"],
        activation="relu",
        window=1,
        depth=1,
    )
    training = Training(
        epochs=epochs,
        batch=task["batch"],
        learning_rate=1e-3,
        weight_decay=1e-7,
        decay=0.995,
        loss_weights=(1 / 3, 1 / 3, 1 / 3),
        precision="float32",
    )
    weights = architecture.initialise(seed=0)
    paths = list(fk.simulate(fk.systems.Lorenz63(), steps, seed=0, batch=segments)[:, 1:])
    cold, _ = timed(client_update, architecture, training, weights, paths, seed=0)
    best = min(
        timed(client_update, architecture, training, weights, paths, seed=seed)[0]
        for seed in range(1, 1 + task["repeats"])
    )
    pairs = segments * (steps - 1)
    flops = flops_per_sample(3, task["width"], components)
    updates = epochs * -(-pairs // task["batch"])
    return {
        "cold": cold,
        "best": best,
        "microseconds_per_step": 1e6 * best / updates,
        "flops_per_step": flops * task["batch"],
        "gflops": flops * pairs * epochs / best / 1e9,
    }


def measure_products(task: dict) -> dict:
    """Every matrix product of a training step by itself, in a compiled loop: what the step's
    arithmetic alone would take."""
    import jax
    import numpy as np

    loops, state, width, components, batch = 2000, 3, 30, 12, 64
    both = 2 * batch
    layers = [
        (width, state + 1, both),
        (components, width + 1, both),
        (components, components, batch),
        (width, components + 1, both),
        (state, width + 1, both),
    ]
    options = {
        "xla_cpu_multi_thread_eigen": False,
        "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
    }
    times = {}
    for number, (out, into, n) in enumerate(layers):
        for name, a, b, axes in (
            ("forward", (out, into), (into, n), (1, 0)),
            ("inputs", (out, into), (out, n), (0, 0)),
            ("weights", (out, n), (into, n), (1, 1)),
        ):
            if name == "inputs" and number == 0:
                continue  # the network's input needs no gradient
            dims = (((axes[0],), (axes[1],)), ((), ()))

            def repeat(x, y, dims=dims):
                def body(_, x):
                    # The next product depends on this one, or it would be hoisted.
                    return x.at[0, 0].set(jax.lax.dot_general(x, y, dims)[0, 0])

                return jax.lax.fori_loop(0, loops, body, x)

            x, y = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in (a, b))
            run = jax.jit(repeat, compiler_options=options)
            run(x, y).block_until_ready()
            best = min(
                timed(lambda f=run, x=x, y=y: f(x, y).block_until_ready())[0]
                for _ in range(task["repeats"])
            )
            times[f"{number} {name}"] = 1e6 * best / loops
    return {"microseconds": sum(times.values()), "each": times}


MEASURES = {
    "peer": measure_peer,
    "ours": measure_ours,
    "peak": measure_peak,
    "training": measure_training,
    "products": measure_products,
}
