"""How long to wait between two polls.

Flower sends no notifications: to wait for a message is to poll for it. A fixed interval is either
slow or busy. Here the interval is a tenth of the time for which nothing has come: an active
federation loses a tenth of its time at most, and an idle one polls as rarely as Flower's own loops.
"""

import time

SHARE = 0.1


class AdaptiveInterval:
    """An interval that grows with the time since something last happened.

    Arguments:
        shortest: seconds, right after something happened.
        longest: seconds, after a long silence.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self.shortest = shortest
        self.longest = longest
        self._since = time.monotonic()

    def refresh(self) -> None:
        """Note that something happened."""
        self._since = time.monotonic()

    def seconds(self) -> float:
        """The current interval."""
        silence = time.monotonic() - self._since
        return min(self.longest, max(self.shortest, SHARE * silence))

    def wait(self) -> None:
        """Sleep for the current interval."""
        time.sleep(self.seconds())
