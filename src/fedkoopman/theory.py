"""Theorem 1: how far the mean of all clients' models is from the target, at most, slot by slot.

    E‖ω_{t+1} − ω*‖² ≤ (1 − μη_t) E‖ω_t − ω*‖² + η_t² [8(E−1)²G² + 6LΓ] + V_t
                        + Σ_k C_k E² η_t² (G² + σ²)

The theorem prints the variance term as V_t = (1/N²) Σ_n (δ_n² + σ_n²); Lemma 2, which it comes
from, derives η_t² times that. Both forms are here: as printed the bound is the looser one for
η_t ≤ 1, and with noise it does not shrink as the steps do.

The proof takes all clients to hold one model at the start of every round. After a round in which
nobody is selected they do not, so the bound is proved for p = 1, or where such rounds never happen
(`never_empty`); docs/theory.md tells where it fails otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkoopman.errors import InputError, short, unknown_name

__all__ = [
    "Constants",
    "Form",
    "bound",
    "coefficients",
    "decreasing_steps",
    "failed_conditions",
    "limit",
    "next_bound",
    "selected",
]

Form = Literal["printed", "derived"]

ROUNDING = 1 + 1e-12
"""Conditions on step sizes may be met with equality, which rounding must not break."""


@dataclass(frozen=True)
class Constants:
    """What the bound is made of.

    Attributes:
        smoothness: L, of every client's loss.
        convexity: μ, of every client's loss.
        gradient_bound: G, whose square bounds E‖∇L_n(ω_t^n; ξ)‖² for every client and slot.
        clients: N.
        probability: p, with which a client is selected in a round.
        local_steps: E, slots in a round.
        heterogeneity: Γ = L* − (1/N) Σ_n L_n*.
        gradient_noise: δ_n, the standard deviation of a stochastic gradient; one number for all
            clients, or one each.
        error: σ_n, the standard deviation of the gradient's error e_n that erroneous data causes.
        never_empty: rounds in which nobody is selected are drawn again. Not in the paper: C_k is
            then conditional on k > 0, and the clients' models are alike after every round.
    """

    smoothness: float
    convexity: float
    gradient_bound: float
    clients: int
    probability: float
    local_steps: int = 1
    heterogeneity: float = 0.0
    gradient_noise: float | Sequence[float] = 0.0
    error: float | Sequence[float] = 0.0
    never_empty: bool = False

    def __post_init__(self) -> None:
        for name in ("clients", "local_steps"):
            _check_count(name, getattr(self, name))
        for name in ("smoothness", "convexity", "gradient_bound", "probability", "heterogeneity"):
            _check_number(name, getattr(self, name))
        if not 0 < self.convexity <= self.smoothness:
            raise InputError(
                f"convexity μ = {self.convexity:g} with smoothness L = {self.smoothness:g}: "
                "0 < μ ≤ L is needed"
            )
        _check_probability(self.probability, self.never_empty)
        for name in ("gradient_noise", "error"):
            values = np.atleast_1d(_numbers(name, getattr(self, name)))
            if values.ndim != 1 or len(values) not in (1, self.clients):
                raise InputError(
                    f"{name} has the shape {values.shape} but there are {self.clients} clients: "
                    "give one number, or one per client"
                )
            each = np.broadcast_to(values, (self.clients,))
            object.__setattr__(self, name, tuple(each.tolist()))

    @property
    def mean_variance(self) -> float:
        """(1/N²) Σ_n (δ_n² + σ_n²): the variance of a mean of all clients' noisy gradients."""
        noise, error = np.asarray(self.gradient_noise), np.asarray(self.error)
        return float(np.sum(noise**2 + error**2)) / self.clients**2

    @property
    def worst_error_variance(self) -> float:
        """σ² = max_n σ_n²."""
        return float(np.max(self.error)) ** 2

    @property
    def selection(self) -> float:
        """Σ_k C_k."""
        return float(coefficients(self.clients, self.probability, self.never_empty).sum())


def selected(clients: int, probability: float, never_empty: bool = False) -> NDArray[np.float64]:
    """Probability that k = 0 … N clients are selected in a round.

    Each is built up from its neighbour, starting at the most likely k: no factorial overflows,
    and for any N only the far tails become 0.

    Arguments:
        clients: N.
        probability: p.
        never_empty: whether rounds with k = 0 are drawn again.
    """
    _check_count("clients", clients)
    _check_number("probability", probability)
    _check_probability(probability, never_empty)
    mode = min(int((clients + 1) * probability), clients)
    k = np.arange(clients + 1.0)
    weight = np.ones(clients + 1)
    if mode < clients:
        up = (clients - k[mode:-1]) / k[mode + 1 :] * (probability / (1 - probability))
        weight[mode + 1 :] = np.cumprod(up)
    if mode > 0:
        down = k[mode:0:-1] / (clients - k[mode:0:-1] + 1) * ((1 - probability) / probability)
        weight[:mode] = np.cumprod(down)[::-1]
    if never_empty:
        weight[0] = 0.0
    return weight / weight.sum()


def coefficients(
    clients: int, probability: float, never_empty: bool = False
) -> NDArray[np.float64]:
    """C_1 … C_N: 4 (N−k) / (k (N−1)) times the probability that k clients are selected.

    A lone client is selected or not, and its model is the mean either way: C_1 = 0 for N = 1.
    """
    chance = selected(clients, probability, never_empty)[1:]
    if clients == 1:
        return np.zeros(1)
    k = np.arange(1.0, clients + 1)
    return 4 * (clients - k) / (k * (clients - 1)) * chance


def next_bound(
    constants: Constants, distance: float, step_size: float, form: Form = "printed"
) -> float:
    """The theorem's right-hand side: a bound on E‖ω_{t+1} − ω*‖² from E‖ω_t − ω*‖².

    Arguments:
        constants: L, μ, G and the rest.
        distance: E‖ω_t − ω*‖², or a bound on it.
        step_size: η_t.
        form: "printed", or "derived" for the variance term times η_t².
    """
    square, constant = _added(constants, form)
    return (1 - constants.convexity * step_size) * distance + step_size**2 * square + constant


def bound(
    constants: Constants, step_sizes: ArrayLike, initial: float, form: Form = "printed"
) -> NDArray[np.float64]:
    """The bound on E‖ω_t − ω*‖² for t = 0 … T, from ‖ω_0 − ω*‖² and step sizes η_0 … η_{T−1}.

    Step sizes that do not meet the theorem's conditions are refused; `failed_conditions` lists
    what is wrong with them.
    """
    sizes = _sizes(step_sizes)
    _check_number("initial", initial)
    _check_conditions(constants, sizes)
    square, constant = _added(constants, form)
    values = [float(initial)]
    for size in sizes.tolist():
        values.append((1 - constants.convexity * size) * values[-1] + size**2 * square + constant)
    return np.array(values)


def limit(constants: Constants, step_size: float, form: Form = "printed") -> float:
    """What the bound tends to with a constant step size: the recursion's fixed point."""
    _check_conditions(constants, [step_size])
    square, constant = _added(constants, form)
    return (step_size * square + constant / step_size) / constants.convexity


def failed_conditions(constants: Constants, step_sizes: ArrayLike) -> tuple[str, ...]:
    """The theorem's conditions on η_t that step sizes do not meet, in words; none if it applies.

    "Decreasing" is read as "not increasing", which is all that the proof uses.
    """
    sizes = _sizes(step_sizes)
    most, ahead = 1 / (4 * constants.smoothness), constants.local_steps
    failed = []
    if (t := _first(sizes > most * ROUNDING)) is not None:
        failed.append(f"η_{t} = {sizes[t]:g} is above 1/(4L) = {most:g}: take smaller steps")
    if (t := _first(sizes[1:] > sizes[:-1] * ROUNDING)) is not None:
        failed.append(
            f"η_{t + 1} = {sizes[t + 1]:g} is larger than η_{t} = {sizes[t]:g}: "
            "step sizes must not increase"
        )
    if (t := _first(sizes[:-ahead] > 2 * sizes[ahead:] * ROUNDING)) is not None:
        failed.append(
            f"η_{t} = {sizes[t]:g} is more than twice η_{t + ahead} = {sizes[t + ahead]:g}, "
            f"E = {ahead} slots later: let step sizes decrease more slowly"
        )
    return tuple(failed)


def decreasing_steps(
    smoothness: float, convexity: float, local_steps: int, slots: int
) -> NDArray[np.float64]:
    """η_t = 2 / (μ (γ + t)) with γ = max(8L/μ, E), t = 0 … T−1: they meet all conditions.

    They decrease like 1/t, as the derived bound needs to tend to 0 at that rate.
    """
    offset = max(8 * smoothness / convexity, local_steps)
    return 2 / (convexity * (offset + np.arange(slots)))


def _check_conditions(constants: Constants, step_sizes: ArrayLike) -> None:
    if failed := failed_conditions(constants, step_sizes):
        raise InputError(f"Theorem 1 does not apply: {'; '.join(failed)}")


def _added(constants: Constants, form: Form) -> tuple[float, float]:
    """What a slot adds to the bound: the factor of η_t², and what stands without it."""
    if form not in get_args(Form):
        raise unknown_name("form of the bound", form, get_args(Form))
    steps, gradient = constants.local_steps, constants.gradient_bound**2
    square = 8 * (steps - 1) ** 2 * gradient
    square += 6 * constants.smoothness * constants.heterogeneity
    square += constants.selection * steps**2 * (gradient + constants.worst_error_variance)
    variance = constants.mean_variance
    return (square, variance) if form == "printed" else (square + variance, 0.0)


def _first(wrong: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(wrong)) if wrong.any() else None


def _sizes(values: ArrayLike) -> NDArray[np.float64]:
    sizes = _numbers("step_sizes", values)
    if sizes.ndim != 1 or not (sizes > 0).all():
        raise InputError(f"step_sizes is {short(values)}: give a list of numbers above 0")
    return sizes


def _numbers(name: str, value: object) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise InputError(f"{name} is {short(value)}: give finite numbers, none below 0")
    return numbers


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or _numbers(name, value).ndim:
        raise InputError(f"{name} is {short(value)}: give one number")


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {short(value)}: give a whole number of at least 1")


def _check_probability(value: float, never_empty: bool) -> None:
    if value > 1:
        raise InputError(f"probability is {value:g}: give a number from 0 to 1")
    if never_empty and value == 0:
        raise InputError("probability is 0: somebody can be selected only if it is above 0")
