"""The files of a fleet's directory, and how kits and codes are made and remade.

    ca.key ca.crt server.key server.crt     keys and certificates
    kits/NAME.kit codes.txt                 a sealed kit per site, and the codes that open them
    roster.json issued.json                 who may take part, and what the kits were made for
    nginx.conf proxy/ systemd/ logrotate.conf

All of it is private to its owner. `ca.key` may be kept elsewhere, as only certificates need it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.certificates import node_keys, read_file
from fedkoopman.deploy.provisioning.kit import new_code, normal_code, read_kit, seal
from fedkoopman.deploy.provisioning.kit_content import KEYS, fingerprint, kit_content
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.durable import held, private_directory, write_private, writing
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

LOCK = ".lock"
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class FleetDirectory:
    """A fleet's directory."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory if it is missing, and lock it against other processes."""
        with writing(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise InputError(f"{self.path} is a file: give a directory for the fleet")
            ours = (self.path / LOCK).exists() or (self.path / "roster.json").exists()
            if self.path.exists() and not ours and any(self.path.iterdir()):
                raise InputError(
                    f"{self.path} is not empty and holds no fleet: give another --fleet"
                )
            private_directory(self.path)
        busy = f"{self.path} is being provisioned by another process: wait for it"
        with held(self.path / LOCK, busy):
            for left in self.path.rglob(".*.partial"):
                left.unlink(missing_ok=True)  # left by a killed process
            try:
                yield
            finally:
                if [entry.name for entry in self.path.iterdir()] == [LOCK]:  # nothing was made
                    (self.path / LOCK).unlink()
                    self.path.rmdir()

    def roster(self) -> Roster | None:
        """The roster, if there is one."""
        return Roster.load(self.path) if (self.path / "roster.json").exists() else None

    def issued_for(self, files: Files) -> bool:
        """Whether the kits were made of these files, by this version."""
        issued = self.path / "issued.json"
        return issued.exists() and read_file(issued) == _mark(files)

    def reissued(self, roster: Roster, study: Study, files: Files) -> tuple[Roster, list[str]]:
        """Remake all kits for a changed study, with the same keys and codes."""
        issued = self.path / "issued.json"
        kept = {site.name: self._keys(site.name, roster) for site in roster.active}
        with writing(issued):
            # First: if this process is killed from here on, the next call repeats all of it.
            issued.unlink(missing_ok=True)
        clients = max(study.clients.count, len(roster.sites))
        for site in roster.active:
            content = kit_content(
                files, site.name, site.identity, clients, study.digest(), kept[site.name]
            )
            seal(content, self._kit(site.name), self._codes().get(site.name))
        roster = replace(roster, digest=study.digest())
        if roster.sites:
            roster.save(self.path)
        write_private(issued, _mark(files))
        if not kept:
            return roster, []
        return roster, [
            f"the study or fedkoopman changed: made the kits of {', '.join(kept)} anew, with the "
            "same keys and unlock codes; hand them out, each site is asked to consent anew"
        ]

    def enrolled(
        self, roster: Roster, study: Study, files: Files, names: Sequence[str], now: datetime
    ) -> tuple[Roster, dict[str, str], list[str]]:
        """Enrol new sites; those enrolled before keep what they have.

        A revoked site comes back to its old place, by which the server and its own store know what
        became of its data; its key is another one, as the old one may be in wrong hands.
        """
        gone = [site.name for site in roster.sites if site.revoked]
        new = [name for name in names if name not in roster.names or name in gone]
        said = _spare(study, roster, [name for name in new if name not in gone])
        added = [name for name in new if name not in gone]
        clients = max(study.clients.count, len(roster.sites) + len(added))
        private_directory(self.path / "kits")
        made = {}
        for name in new:
            keys: dict[str, bytes] = {}
            code = None
            back = name in gone
            identity = roster.site(name).identity if back else len(roster.sites)
            if roster.secure:
                keys, code = self._begun(name)
                if back and keys["node.pub"].decode().strip() == roster.site(name).public_key:
                    self.forget(name)  # left by a killed call that revoked it
                    keys, code = self._begun(name)
                made[name] = code
            content = kit_content(files, name, identity, clients, study.digest(), keys)
            seal(content, self._kit(name), code)
            public = keys["node.pub"].decode().strip() if keys else ""
            enrol = roster.taken_back if back else roster.add
            roster = enrol(name, public, now.isoformat(timespec="seconds"))
            roster.save(self.path)
        said += [f"made {shown(self._kit(name))}" for name in new]
        said += [
            f"{name} is taken back to its old place, with a new key: hand it the new kit"
            for name in new
            if name in gone
        ]
        old = [name for name in names if name not in new]
        if old:
            said.append(f"enrolled before, and left as they were: {', '.join(old)}")
        return roster, made, said

    def forget(self, name: str) -> None:
        """Remove a site's kit and code."""
        codes = self._codes()
        if codes.pop(name, None):
            self._write_codes(codes)
        with writing(self._kit(name)):
            self._kit(name).unlink(missing_ok=True)

    def _kit(self, name: str) -> Path:
        return self.path / "kits" / f"{name}.kit"

    def _keys(self, name: str, roster: Roster) -> dict[str, bytes]:
        """A site's keys, from its kit."""
        if not roster.secure:
            return {}
        code = self._codes().get(name)
        if code is None or not self._kit(name).exists():
            what = "its code in codes.txt" if code is None else shown(self._kit(name))
            raise InputError(
                f"the kit of {name} cannot be made anew without {what}: put it back from a backup, "
                f"or --revoke {name}, and enrol it again with --sites {name}, which makes a new key"
            )
        return self._with_keys(read_kit(self._kit(name), code))

    def _begun(self, name: str) -> tuple[dict[str, bytes], str]:
        """Keys and code of a new site; those of a killed call, if it had made them."""
        codes = self._codes()
        if name in codes and self._kit(name).exists():
            try:
                return self._with_keys(read_kit(self._kit(name), codes[name])), codes[name]
            except InputError:
                pass
        codes[name] = new_code()
        self._write_codes(codes)
        private, public = node_keys(name)
        return self._with_keys({"node.key": private, "node.pub": public}), codes[name]

    def _with_keys(self, content: Files) -> dict[str, bytes]:
        """A site's own keys, and the authority that it trusts."""
        own = {name: content[name] for name in KEYS if name != "ca.crt"}
        return {"ca.crt": read_file(self.path / "ca.crt"), **own}

    def _codes(self) -> dict[str, str]:
        """Unlock codes by site."""
        path = self.path / "codes.txt"
        lines = read_file(path).decode().splitlines() if path.exists() else []
        words = [line.split(maxsplit=1) for line in lines if line.strip()]
        return {pair[0]: normal_code(pair[1]) for pair in words if len(pair) == 2}

    def _write_codes(self, codes: Mapping[str, str]) -> None:
        text = "".join(f"{name} {code}\n" for name, code in codes.items())
        write_private(self.path / "codes.txt", text.encode())


def _spare(study: Study, roster: Roster, new: Sequence[str]) -> list[str]:
    """A line about lists of values in a study that has more sites than values."""
    later = [name for i, name in enumerate(new, len(roster.sites)) if i >= study.clients.count]
    lists = {
        "clients.probability": study.clients.probability,
        "training.learning_rate": study.training.learning_rate,
    }
    keys = [key for key, value in lists.items() if isinstance(value, tuple)]
    if not later or not keys:
        return []
    return [f"{', '.join(later)}: of {' and '.join(keys)}, the last value counts for further sites"]


def _mark(files: Files) -> bytes:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return (json.dumps({"fingerprint": fingerprint(hashes)}) + "\n").encode()
