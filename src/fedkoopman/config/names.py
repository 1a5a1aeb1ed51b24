"""Texts as names of directories."""

import hashlib
import re

_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+")
_LONGEST = 100


def folder_name(text: str) -> str:
    """A text as the name of one directory, on any file system.

    What a name may not hold becomes a dash; a long text is cut, and ends in a part of its hash so
    that another long text has another name.

    Arguments:
        text: as a study's name, or "training.epochs=5,policy.segments=3".
    """
    name = _UNSAFE.sub("-", text).strip("-.") or "unnamed"
    if len(name) <= _LONGEST:
        return name
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[:_LONGEST].rstrip('-.,')}-{mark}"
