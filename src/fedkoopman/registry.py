"""Registries: every protocol has one, and a new member is one file.

A member has a name and comes from one of three places:

- a module of the protocol's own package that binds the protocol's attribute, as
  `AGGREGATOR = TrimmedMean` in `federation/aggregators/trimmed_mean.py`, whose name is then
  "trimmed-mean";
- another installed package, by an entry point in the group `fedkoopman.aggregators`;
- a Python file of the user's own, as "file.py:name", where a study names it.

Names are listed without importing any member, so that a study is read without JAX.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedkoopman.errors import InputError, cause_of, short, unknown_name
from fedkoopman.user_code import is_reference, load_object, plain_function

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """The members of one protocol, by name."""

    def __init__(
        self,
        kind: str,
        home: str,
        attribute: str,
        check: Callable[[Any], str] = lambda _: "",
        group: str | None = None,
        form: str = "",
        other: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        """Describe a registry; nothing is imported yet.

        Arguments:
            kind: what a member is ("aggregator"), as it should read in messages.
            home: the package whose modules hold our own members.
            attribute: the name to which such a module binds its member.
            check: says what is wrong with an object that is to be a member, as "is a list, but a
                function is expected"; empty if nothing is.
            group: of entry points; by default "fedkoopman." and the kind's plural.
            form: where members are functions, how one is written, as "policy(situation)".
            other: whether an object that is no function is a member all the same.
        """
        self.kind, self.home, self.attribute = kind, home, attribute
        self._check, self._form, self._other = check, form, other
        self.group = group or f"fedkoopman.{kind.replace(' ', '_')}s"
        self._found: dict[str, Member] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, ours first."""
        return (*self._modules, *(name for name in self._foreign if name not in self._modules))

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def find(self, name: str, folder: Path | None = None) -> Member:
        """The member of a name.

        Arguments:
            name: one of `names`, or "file.py:name".
            folder: where a user's file is looked up.
        """
        if not isinstance(name, str):
            raise unknown_name(self.kind, name, self.names)
        if is_reference(name):
            return self._checked(load_object(name, folder or Path.cwd()), name)
        if name not in self._found:
            self._found[name] = self._load(name)
        return self._found[name]

    def check_name(self, name: str) -> None:
        """Refuse an unknown name, without loading the member of a known one."""
        if name not in self and not is_reference(name):
            raise unknown_name(self.kind, name, self.names)

    def _load(self, name: str) -> Member:
        if name in self._modules:
            member = getattr(import_module(self._modules[name]), self.attribute)
        elif name in self._foreign:
            entry = self._foreign[name]
            try:
                member = entry.load()
            except (Exception, SystemExit) as error:
                package = entry.dist.name if entry.dist else entry.value
                raise InputError(
                    f"the {self.kind} {name!r} of the package {package} cannot be loaded "
                    f"({cause_of(error)}): mend or remove that package"
                ) from error
        else:
            raise unknown_name(self.kind, name, self.names)
        return self._checked(member, name)

    def _checked(self, member: Any, name: str) -> Member:
        if self._form and not self._other(member):
            plain_function(member, name, self._form)
        if wrong := self._check(member):
            raise InputError(f"{name} {wrong} (it is {short(member)})")
        found: Member = member
        return found

    @cached_property
    def _modules(self) -> Mapping[str, str]:
        """Our own members: module by name. Modules are read as text, not imported."""
        package, *parts = self.home.split(".")
        binds = re.compile(rf"^{self.attribute}\b[^\n=]*=", re.MULTILINE)
        found = {}
        for file in files(package).joinpath(*parts).iterdir():
            stem = file.name.removesuffix(".py")
            if stem != file.name and binds.search(file.read_text(encoding="utf-8")):
                found[stem.replace("_", "-")] = f"{self.home}.{stem}"
        return dict(sorted(found.items()))

    @cached_property
    def _foreign(self) -> Mapping[str, EntryPoint]:
        """Members of other packages."""
        return {entry.name: entry for entry in entry_points(group=self.group)}
