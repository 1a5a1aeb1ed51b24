"""How often something may happen: so many times per second, and some more after a rest."""

import threading
import time
from collections.abc import Callable

__all__ = ["Rate"]


class Rate:
    """Threads may share it."""

    def __init__(
        self, per_second: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Arguments:

        per_second: how often in the long run.
        most: how often at once, after a rest.
        clock: that goes on steadily.
        """
        self._per_second, self._most, self._clock = per_second, float(most), clock
        self._left, self._seen = self._most, clock()
        self._guard = threading.Lock()

    def allows(self) -> bool:
        """Whether it may happen once more now; if so, that is counted."""
        with self._guard:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._seen) * self._per_second)
            self._seen = now
            if self._left < 1:
                return False
            self._left -= 1
            return True
