"""Textbook twin of the learning part, in plain NumPy, written from the paper and not from our code.

Deep Koopman network with gradients by hand (Section IV-A), ClientUpdate and FedAvg-M (Section
IV-B, Algorithm 3), prediction error (Section V-A) and valid prediction horizon; one sample at a
time, float64. A model is `{"encoder": [(W, b), …], "operator": K, "decoder": [(W, b), …]}` with W
of shape (out, in), and ReLU after every layer of encoder and decoder but their last.
"""

import numpy as np

from reference.filters import ukf, urts


def leaves(params):
    """The arrays of a model, in one fixed order."""
    layers = [*params["encoder"], (params["operator"],), *params["decoder"]]
    return [array for layer in layers for array in layer]


def rebuild(params, arrays):
    """A model shaped like `params` from arrays in the order of `leaves`."""
    arrays = iter(arrays)

    def stack(layers):
        return [(next(arrays), next(arrays)) for _ in layers]

    encoder = stack(params["encoder"])
    operator = next(arrays)
    return {"encoder": encoder, "operator": operator, "decoder": stack(params["decoder"])}


def forward(layers, x):
    """The output for one input vector, and the input of every layer, which `backward` needs."""
    inputs = []
    for i, (weight, bias) in enumerate(layers):
        inputs.append(x)
        x = weight @ x + bias
        if i < len(layers) - 1:
            x = np.maximum(x, 0)
    return x, inputs


def backward(layers, inputs, slope):
    """From dℓ/d(output) to [(dℓ/dW, dℓ/db), …] and dℓ/d(input)."""
    gradients = []
    for i in reversed(range(len(layers))):
        gradients.insert(0, (np.outer(slope, inputs[i]), slope))
        slope = layers[i][0].T @ slope
        if i > 0:  # inputs[i] left a ReLU, whose slope is 1 where it let something through, else 0
            slope = np.where(inputs[i] > 0, slope, 0)
    return gradients, slope


def encode(params, x):
    return forward(params["encoder"], x)[0]


def decode(params, y):
    return forward(params["decoder"], y)[0]


def losses(params, x, x_tau):
    """(ℓ1, ℓ2, ℓ3) of one pair (X, X^τ) of flat windows."""
    y, y_tau = encode(params, x), encode(params, x_tau)
    y_bar = params["operator"] @ y
    l1 = np.sum((y_bar - y_tau) ** 2) / len(y)
    l2 = np.sum((x - decode(params, y)) ** 2) / len(x)
    l3 = np.sum((decode(params, y_bar) - x_tau) ** 2) / len(x)
    return np.array([l1, l2, l3])


def batch_loss(params, pairs, weights):
    """The mean over the batch of ℓ = w1 ℓ1 + w2 ℓ2 + w3 ℓ3."""
    return np.mean([np.dot(weights, losses(params, x, x_tau)) for x, x_tau in pairs])


def sample_gradient(params, x, x_tau, weights):
    """The gradient of ℓ for one pair. X^τ passes through the encoder too, and ℓ1 sees it there."""
    encoder, operator, decoder = params["encoder"], params["operator"], params["decoder"]
    y, inputs_y = forward(encoder, x)
    y_tau, inputs_y_tau = forward(encoder, x_tau)
    y_bar = operator @ y
    x_bar, inputs_x_bar = forward(decoder, y)
    x_bar_tau, inputs_x_bar_tau = forward(decoder, y_bar)

    from_l1 = 2 * weights[0] / len(y) * (y_bar - y_tau)
    from_l2 = 2 * weights[1] / len(x) * (x_bar - x)
    from_l3 = 2 * weights[2] / len(x) * (x_bar_tau - x_tau)
    decoder_l2, slope_y_l2 = backward(decoder, inputs_x_bar, from_l2)
    decoder_l3, slope_y_bar_l3 = backward(decoder, inputs_x_bar_tau, from_l3)
    slope_y_bar = from_l1 + slope_y_bar_l3
    slope_y = operator.T @ slope_y_bar + slope_y_l2
    encoder_y, _ = backward(encoder, inputs_y, slope_y)
    encoder_y_tau, _ = backward(encoder, inputs_y_tau, -from_l1)

    def add(first, second):
        return [(w + v, b + c) for (w, b), (v, c) in zip(first, second, strict=True)]

    return {
        "encoder": add(encoder_y, encoder_y_tau),
        "operator": np.outer(slope_y_bar, y),
        "decoder": add(decoder_l2, decoder_l3),
    }


def batch_gradient(params, pairs, weights):
    """The gradient of `batch_loss`, as a model-shaped dict."""
    total = [np.zeros_like(array) for array in leaves(params)]
    for x, x_tau in pairs:
        parts = leaves(sample_gradient(params, x, x_tau, weights))
        total = [array + part for array, part in zip(total, parts, strict=True)]
    return rebuild(params, [array / len(pairs) for array in total])


class Adam:
    """Adam as in PyTorch: weight decay is an L2 term in the gradient of every array, biases too."""

    def __init__(self, weight_decay=0.0, beta1=0.9, beta2=0.999, eps=1e-8):
        self.weight_decay, self.beta1, self.beta2, self.eps = weight_decay, beta1, beta2, eps
        self.count, self.first, self.second = 0, None, None

    def step(self, arrays, gradients, learning_rate):
        """The arrays after one step."""
        if self.first is None:
            self.first = [np.zeros_like(array) for array in arrays]
            self.second = [np.zeros_like(array) for array in arrays]
        self.count += 1
        stepped = []
        for i, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
            g = gradient + self.weight_decay * array
            self.first[i] = self.beta1 * self.first[i] + (1 - self.beta1) * g
            self.second[i] = self.beta2 * self.second[i] + (1 - self.beta2) * g**2
            m = self.first[i] / (1 - self.beta1**self.count)
            v = self.second[i] / (1 - self.beta2**self.count)
            stepped.append(array - learning_rate * m / (np.sqrt(v) + self.eps))
        return stepped


def window_starts(lengths, mu=1, tau=1):
    """Rows, in the segments laid end to end, at which a window begins whose target, τ samples
    later, ends inside the same segment: the numbers that an epoch's order permutes."""
    starts, offset = [], 0
    for length in lengths:
        starts += range(offset, offset + length - mu - tau + 1)
        offset += length
    return np.array(starts, dtype=int)


def pair(states, start, mu=1, tau=1):
    """(X, X^τ) of the window that begins at `start`, each flat, oldest state first."""
    x = states[start : start + mu].ravel()
    x_tau = states[start + tau : start + tau + mu].ravel()
    return x, x_tau


def client_update(
    params,
    segments,
    orders,
    *,
    mu=1,
    tau=1,
    weights=(1 / 3, 1 / 3, 1 / 3),
    batch=64,
    eta=1e-3,
    weight_decay=1e-7,
    decay=0.995,
    proximal=0.0,
):
    """ClientUpdate with given draws: `orders` holds, for each epoch, a permutation of
    `window_starts`. The last, short batch counts; the rate falls by `decay` after every epoch.
    FedProx adds `proximal` / 2 times the squared distance from the first `params` to the loss."""
    received = [np.array(array) for array in leaves(params)]
    states = np.concatenate(segments)
    starts = window_starts([len(segment) for segment in segments], mu, tau)
    adam = Adam(weight_decay)
    for epoch, order in enumerate(orders):
        if not np.array_equal(np.sort(order), starts):
            raise ValueError(f"epoch {epoch}: not a permutation of the window starts {starts}")
        for at in range(0, len(order), batch):
            pairs = [pair(states, start, mu, tau) for start in order[at : at + batch]]
            gradient = batch_gradient(params, pairs, weights)
            rate = eta * decay**epoch
            pull = [proximal * (a - b) for a, b in zip(leaves(params), received, strict=True)]
            slope = [a + b for a, b in zip(leaves(gradient), pull, strict=True)]
            params = rebuild(params, adam.step(leaves(params), slope, rate))
    return params


def fedavg(models, sizes):
    """The mean of the models, weighted by |D_n| / l_m."""
    sums = [np.zeros_like(array) for array in leaves(models[0])]
    for model, size in zip(models, sizes, strict=True):
        for into, array in zip(sums, leaves(model), strict=True):
            into += size / sum(sizes) * array
    return rebuild(models[0], sums)


def federate(params, arrivals, orders, *, clients, threshold, eta=1e-3, **training):
    """FedAvg-M under the threshold policy, with given draws.

    `arrivals[m - 1]` maps each client that observed in slot m to its segment of states (T, d);
    `orders(slot, client, starts)` gives a client's permutations of `starts`, one per epoch.
    `threshold` (in samples) and `eta`: one, or one per client. Returns one dict per slot.
    """
    thresholds = np.broadcast_to(threshold, clients)
    rates = np.broadcast_to(eta, clients)
    mu, tau = training.get("mu", 1), training.get("tau", 1)
    data = [[] for _ in range(clients)]
    rounds = []
    for slot, arrived in enumerate(arrivals, start=1):
        for client, segment in arrived.items():
            data[client].append(segment)
        sizes = [sum(len(segment) for segment in segments) for segments in data]
        active = [n for n in range(clients) if sizes[n] > 0 and sizes[n] >= thresholds[n]]
        trained = []
        for n in active:
            starts = window_starts([len(segment) for segment in data[n]], mu, tau)
            shuffled = orders(slot, n, starts)
            trained.append(client_update(params, data[n], shuffled, eta=rates[n], **training))
            data[n] = []
        if active:
            params = fedavg(trained, [sizes[n] for n in active])
        samples = sum(sizes[n] for n in active)
        record = {"slot": slot, "arrived": sorted(arrived), "buffered": sizes, "active": active}
        rounds.append({**record, "samples": samples, "model": params})
    return rounds


def smoothed_segments(f, h, observations, q, r, mean, cov, **unscented):
    """x̃_1 … x̃_ζ of each array of observations z_1 … z_ζ: UKF without resampling, then URTS."""
    segments = []
    for z in observations:
        means, covs, _ = ukf(f, h, z, q, r, mean, cov, **unscented)
        segments.append(urts(f, means, covs, q, **unscented)[0][1:])
    return segments


def mean_losses(params, trajectories, mu=1, tau=1):
    """Test (ℓ1, ℓ2, ℓ3), each the mean over all pairs of all trajectories."""
    rows = []
    for states in trajectories:
        for start in window_starts([len(states)], mu, tau):
            rows.append(losses(params, *pair(states, start, mu, tau)))
    return np.mean(rows, axis=0)


def prediction_errors(params, trajectories, steps, mu=1, tau=1):
    """(E_{1,l}, E_{2,l}) for l = `steps` applications of K, each of which advances τ samples: the
    mean over all starts of a trajectory, then over trajectories. With μ > 1, x is a window."""
    power = np.linalg.matrix_power(params["operator"], steps)
    means = []
    for states in trajectories:
        errors = []
        for start in window_starts([len(states)], mu, steps * tau):
            x, x_later = pair(states, start, mu, steps * tau)
            y, y_later = encode(params, x), encode(params, x_later)
            e1 = np.sum((x_later - decode(params, power @ y)) ** 2) / len(x)
            e2 = np.sum((y_later - power @ y) ** 2) / len(y)
            errors.append((e1, e2))
        means.append(np.mean(errors, axis=0))
    return np.mean(means, axis=0)


def valid_horizon(params, trajectories, valid_error=0.4, mu=1, tau=1):
    """Samples, in the mean over trajectories, before a rollout from the first window first errs
    by more than `valid_error` times the spread of the test states."""
    everything = np.concatenate(trajectories)
    centred = everything - everything.mean(axis=0)
    spread = np.sqrt(np.mean(np.sum(centred**2, axis=1)))
    horizons = []
    for states in trajectories:
        y, applications = encode(params, states[:mu].ravel()), 0
        for at in range(mu - 1 + tau, len(states), tau):
            y = params["operator"] @ y
            newest = decode(params, y)[-states.shape[1] :]
            if not np.linalg.norm(newest - states[at]) / spread <= valid_error:  # NaN ends it too
                break
            applications += 1
        horizons.append(applications * tau)
    return np.mean(horizons)


def evaluate(params, trajectories, *, mu=1, tau=1, horizon=5, valid_error=0.4):
    """A record's measures; E1 and E2 are the means of E_{1,l} and E_{2,l} over l = 1 … horizon."""
    l1, l2, l3 = mean_losses(params, trajectories, mu, tau)
    by_steps = [prediction_errors(params, trajectories, i + 1, mu, tau) for i in range(horizon)]
    e1, e2 = np.mean(by_steps, axis=0)
    valid = valid_horizon(params, trajectories, valid_error, mu, tau)
    measures = {"l1": l1, "l2": l2, "l3": l3, "E1": e1, "E2": e2, "E": (e1 + e2) / 2}
    return {**measures, "horizon": valid}


def rolled_by_hand(model, states, steps, relift):
    """Forecasts (B, steps, d) by the public parts of a model, one step after the other."""
    lifted, found = model.transform(states), []
    for step in range(steps):
        if relift and step and step % relift == 0:
            lifted = model.transform(model.inverse_transform(lifted))
        lifted = lifted @ model.operator_.T
        found.append(model.inverse_transform(lifted))
    return np.stack(found, axis=1)
