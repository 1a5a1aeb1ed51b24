"""How long to wait before asking again, when asking is the only way to learn something.

Flower has no way to be told: whoever waits for a message asks for it. Asking at a fixed rate is
either slow or busy. Here the wait is a tenth of the time for which nothing has come: a federation
in full swing loses a tenth of its time at most, and one that idles for a month is as quiet as
Flower's own loops.
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
