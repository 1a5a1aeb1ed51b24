"""The tables and figures that can be reproduced, in the paper's order. Loads nothing."""

from dataclasses import dataclass

__all__ = ["CATALOGUE", "About"]


@dataclass(frozen=True)
class About:
    """A table or figure.

    Attributes:
        name: by which it is asked for; its module is called alike.
        paper: where it stands.
        title: what it shows.
        needs_data: whether it needs the measured double pendulum.
    """

    name: str
    paper: str
    title: str
    needs_data: bool = False

    @property
    def module(self) -> str:
        """Where its `ITEM` is."""
        return f"fedkoopman.paper.{self.name.replace('-', '_')}"


CATALOGUE = {
    about.name: about
    for about in (
        About("fig-systems", "Fig. 5a", "three canonical systems, perfect data"),
        About("fig-yni", "Fig. 5b", "YNI heart cell, seven states"),
        About("fig-double-pendulum", "Fig. 5c", "measured double pendulum", needs_data=True),
        About("fig-comparison", "Fig. 6", "KF-FedKL beside three benchmark schemes"),
        About("table-estimators", "Table III", "state estimators on Lorenz63"),
        About("table-ablation", "Table IV", "weights of the three losses"),
        About("fig-noise", "Fig. 7a", "noisy clients"),
        About("fig-probability", "Fig. 7b", "probability of a successful observation"),
        About("fig-clients", "Fig. 7c", "number of clients"),
        About("fig-policy", "Fig. 7d", "who trains when"),
        About("fig-epochs", "Fig. 7e", "epochs of local training"),
        About("fig-restart", "Fig. 7f", "slots between restarts of the system"),
        About("theorem1", "Theorem 1", "the convergence bound, and what it bounds"),
    )
}
"""By name."""
