"""What the server loop needs of whatever carries its messages to the sites.

`flower.fleet.FlowerFleet` is the real carrier; tests have one without a network.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Failure:
    """Why a site's reply is missing.

    Attributes:
        reason: one line.
        absent: the site's node is away, or the message expired; the site itself said nothing.
        broken: the site replied, and its reply breaks the rules.
    """

    reason: str
    absent: bool = False
    broken: bool = False


class Fleet(Protocol):
    """Sites that can be asked."""

    def online(self) -> Mapping[str, int]:
        """Node ids by site, of those that are enrolled, not revoked, and connected."""
        ...

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask sites; gives each one's reply as it comes, or why there is none.

        A site that misses the deadline is not given at all.

        Arguments:
            bodies: what each site is asked.
            deadline: seconds from now.
        """
        ...
