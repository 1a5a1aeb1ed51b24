"""What a kind of sensor is: the keys that describe one in a file, and how it is made of them.

Kinds are loaded to read files, so a kind's module loads JAX only when it makes a sensor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.rules import Row, Rule, Whole

if TYPE_CHECKING:
    from fedkoopman.sensors.base import Sensor

ANGLES = Row(Whole(0), "a list of indices, from 0, of observed components that wrap at 2π")
OBSERVED = Whole(1, 4096)
"""The rule of `observed`, the number of observed components in every kind; see `check_dim`."""


def _given(values: Mapping[str, Any], state_dim: int | None) -> int | None:
    count: int | None = values.get("observed")
    return count


@dataclass(frozen=True)
class SensorKind:
    """A way to describe a sensor by a table of keys.

    Attributes:
        make: makes the sensor of the values by key (each as its rule reads it, without `seed`), the
            number of states, the seed of a random kind, and the folder of users' files.
        keys: the rule of each key.
        required: keys without which no sensor can be made.
        random: whether it is drawn from a seed; then `seed` is among the keys.
        observed: how many components it observes, as far as the values, and the number of states
            (or None), tell.
        former_names: keys that older files write, with their names today.
    """

    make: Callable[[Mapping[str, Any], int, int, Path], "Sensor"]
    keys: Mapping[str, Rule]
    required: tuple[str, ...] = ()
    random: bool = False
    observed: Callable[[Mapping[str, Any], int | None], int | None] = _given
    former_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """Its keys in one line; those that are required stand in angle brackets."""
        return ", ".join(f"<{key}>" if key in self.required else key for key in self.keys)

    def read(self, table: Mapping[str, Any], key: str) -> dict[str, Any]:
        """A table of this kind with every value in its normal form, its keys as they are written.

        Arguments:
            table: `kind` and the kind's keys.
            key: where the table stands, for messages.
        """
        kind, written = table["kind"], dict[str, str]()
        read: dict[str, Any] = {"kind": kind}
        for name, entry in table.items():
            if name == "kind":
                continue
            now = self.former_names.get(name, name)
            if now not in self.keys:
                raise unknown_name(f'key in {key} of kind "{kind}"', name, ["kind", *self.keys])
            if now in written:
                raise InputError(f"{key} has both {written[now]} and {name}: keep {now}")
            written[now] = name
            read[name] = self.keys[now].read(entry, f"{key}.{name}")
        for name in self.required:
            if name not in written:
                allowed = self.keys[name].allows
                raise InputError(f'{key} of kind "{kind}" has no {name}: give {allowed}')
        return read

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a table that was read, by the keys' names of today."""
        named = {self.former_names.get(name, name): value for name, value in table.items()}
        return {name: value for name, value in named.items() if name != "kind"}
