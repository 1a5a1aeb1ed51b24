"""Control of a system by its learned model: LQR, LQG and MPC, and closed loops to try them in.

Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from fedkoopman.lazy import lazy_names

if TYPE_CHECKING:
    from fedkoopman.control.assessment import Facts, facts
    from fedkoopman.control.controller import Controller
    from fedkoopman.control.linear import LinearSystem, linearised
    from fedkoopman.control.loop import ClosedLoop, closed_loop
    from fedkoopman.control.lqg import LQG
    from fedkoopman.control.mpc import MPC, Plan
    from fedkoopman.control.regulator import LQR, lqr
    from fedkoopman.control.targets import Target, target

__all__ = [
    "LQG",
    "LQR",
    "MPC",
    "ClosedLoop",
    "Controller",
    "Facts",
    "LinearSystem",
    "Plan",
    "Target",
    "closed_loop",
    "facts",
    "linearised",
    "lqr",
    "target",
]

__getattr__ = lazy_names(__name__)
