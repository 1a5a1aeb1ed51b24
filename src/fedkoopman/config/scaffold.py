"""A study for real sites, ready to be filled in; or an example with made-up data, ready to run."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from fedkoopman.config.example_recordings import Files, pendulum_recordings, regimes_recordings
from fedkoopman.config.swing_up_recordings import swing_up_recordings
from fedkoopman.config.tables import SiteName
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paths import folder_name


def plain_files(name: str, sites: Sequence[str]) -> Files:
    """A study with some sites, to be filled in."""
    for site in sites:
        SiteName().read(site, "--sites")
    if len(set(sites)) < len(sites):
        raise InputError(f"--sites names one twice ({', '.join(sites)}): give every site its own")
    listed = ", ".join(f'"{site}/site.toml"' for site in sites)
    # A directory's name may hold characters that a text in TOML may not.
    values = {"name": folder_name(name), "files": listed, "count": str(len(sites))}
    found = {
        file: _text(f"plain/{file}", values) for file in ("study.toml", "dynamics.py", "README.md")
    }
    for site in sites:
        found[f"{site}/site.toml"] = _text("plain/site.toml", {"name": site})
        found[f"{site}/data/.gitkeep"] = b""
    return found


def example_files(name: str) -> Files:
    """An example's study with its data."""
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES)
    return EXAMPLES[name]()


def write_scaffold(directory: Path, content: Files) -> None:
    """Write a new directory; one that has anything in it is refused."""
    with writing(directory):
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            what = "is not empty" if directory.is_dir() else "is a file"
            raise InputError(f"{directory} {what}: give the name of a new directory")
        for path in content:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
    # The study is written last, as a sign that everything is there.
    for path in sorted(content, key=lambda path: path == "study.toml"):
        write_whole(directory / path, content[path])


def _pendulum() -> Files:
    names = ("study.toml", "dynamics.py", "README.md")
    found = {name: _text(f"pendulum/{name}") for name in names}
    for lab in ("lab-a", "lab-b", "lab-c"):
        found[f"{lab}/site.toml"] = _text(f"pendulum/{lab}.toml")
    found["lab-c/sensor.py"] = _text("pendulum/sensor.py")
    return found | pendulum_recordings()


def _regimes() -> Files:
    found = {name: _text(f"regimes/{name}") for name in ("study.toml", "README.md")}
    found["dynamics.py"] = _text("pendulum/dynamics.py")
    for lab in ("lab-small", "lab-middle", "lab-large"):
        found[f"{lab}/site.toml"] = _text(f"regimes/{lab}.toml")
    found["lab-large/sensor.py"] = _text("pendulum/sensor.py")
    return found | regimes_recordings()


def _swing_up() -> Files:
    names = ("study.toml", "README.md", "pendulum.py", "swing_up.py")
    found = {name: _text(f"swing-up/{name}") for name in names}
    for lab in ("lab-low", "lab-side", "lab-top"):
        found[f"{lab}/site.toml"] = _text(f"swing-up/{lab}.toml")
    return found | swing_up_recordings()


def _text(path: str, values: dict[str, str] | None = None) -> bytes:
    # Templates in Python have another suffix, so that no tool takes them for our modules.
    name = f"{path}.template" if path.endswith(".py") else path
    text = (files("fedkoopman.config") / "templates" / name).read_text(encoding="utf-8")
    return (Template(text).substitute(values) if values else text).encode()


EXAMPLES: dict[str, Callable[[], Files]] = {
    "pendulum": _pendulum,
    "regimes": _regimes,
    "swing-up": _swing_up,
}
"""By name."""
