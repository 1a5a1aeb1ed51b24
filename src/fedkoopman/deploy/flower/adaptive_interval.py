"""How long to wait between two polls.

Flower does not notify: whoever waits for a message polls for it. A fixed interval is either slow or
busy. Here the interval is a tenth of the time for which nothing has come: an active federation
loses a tenth of its time at most, and an idle one polls as rarely as Flower's own loops.
"""

import time

__all__ = ["AdaptiveInterval"]

SHARE = 0.1


class AdaptiveInterval:
    """Waits that grow with the time since something last happened.

    Arguments:
        shortest: seconds, right after something happened.
        longest: seconds, after a long silence.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self.shortest = shortest
        self.longest = longest
        self._since = time.monotonic()

    def refresh(self) -> None:
        """Something happened."""
        self._since = time.monotonic()

    def seconds(self) -> float:
        """How long to wait now."""
        silence = time.monotonic() - self._since
        return min(self.longest, max(self.shortest, SHARE * silence))

    def wait(self) -> None:
        """Wait that long."""
        time.sleep(self.seconds())
