"""The user's own Python: how `file.py:name` is loaded, and what is told when it fails or hangs.

Every call of a user's function stands in `calling`. What the function raises becomes one line with
the file and line where it happened, and a function that does not return is named on stderr.
"""

import ctypes
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedkoopman.errors import InputError, MachineError, cause_of, short
from fedkoopman.paths import readable_file, shown
from fedkoopman.session_objects import SESSION, kept

__all__ = [
    "UserCodeError",
    "blamed",
    "calling",
    "finished",
    "interrupt_calls",
    "is_reference",
    "load_object",
    "place_of",
    "plain_function",
]

PATIENCE = 10.0
"""Seconds after which a user's function that still runs is named on stderr; then twice that, …"""
LOOK = 1.0
"""Seconds between two looks at the functions that run."""
_BESIDE: dict[str, Path] = {}
"""Modules that users' files imported from beside them, and where they are."""
_LOADED: set[str] = set()
"""Files that `load_object` ran."""
_OURS = str(Path(__file__).parent)
_LIBRARIES = (
    _OURS,
    *{sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")},
)


class UserCodeError(InputError):
    """The user's code failed; the message says at which line of which file."""

    def __init__(self, failed: str, cause: str, place: str, remedy: str) -> None:
        self.cause, self.place = cause, place
        super().__init__(f"{failed} with {cause}{f' ({place})' if place else ''}: {remedy}")


def is_reference(name: str) -> bool:
    """Whether a name is a reference to an object in a file, as "file.py:name"."""
    return ".py:" in name


def load_object(reference: str, folder: Path) -> object:
    """Run `file.py` of a reference `file.py:name` and return what it calls `name`.

    Arguments:
        reference: `file.py:name`.
        folder: the directory that a relative file is looked up in.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"{short(reference)} names no object: write file.py:name")
    if file == SESSION:
        return kept(name)
    path = folder / file
    if not readable_file(path):
        raise InputError(f"{short(reference)}: there is no file {shown(path)}: check the path")
    about = path.stat()
    module = _run(path.resolve(), about.st_mtime_ns, about.st_size)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InputError(
            f"{shown(path)} defines no {name!r}: check the name after the colon"
        ) from None


def plain_function(found: Any, name: str, form: str, expected: str = "") -> Callable[..., Any]:
    """What the user gave, if it can be called as a plain function; otherwise it is refused.

    Arguments:
        found: what the user gave.
        name: what it is called, as "dynamics.py:f".
        form: of the function that is expected, as "f(x)".
        expected: in words, where something else would do as well.
    """
    call = found if inspect.isroutine(found) else type(found).__call__
    asynchronous = inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)
    if isinstance(found, type):
        kind, remedy = f"the class {found.__name__}", "name an instance of it, or a function"
    elif not callable(found):
        name_of_type = type(found).__name__
        article = "an" if name_of_type[0] in "aeiou" else "a"
        kind = f"{article} {name_of_type} ({short(found)})"
        remedy = f"define `def {form}: …`"
    elif asynchronous:
        kind, remedy = "an async function", "write `def` without `async`, and no `await` in it"
    elif inspect.isgeneratorfunction(call):
        kind, remedy = "a generator function", "write `return` in place of `yield`"
    else:
        function: Callable[..., Any] = found
        return function
    wanted = expected or f"a plain function {form}"
    raise InputError(f"{name} is {kind}, but {wanted} is expected: {remedy}")


@contextmanager
def calling(function: object, failed: str, remedy: str = "mend that line") -> Iterator[None]:
    """Run a user's function within this, also while JAX traces it.

    Whatever it raises, `sys.exit` and endless recursion included, becomes a `UserCodeError`;
    Ctrl-C passes.

    Arguments:
        function: whose file and name are told.
        failed: the beginning of the message, as "the policy failed in slot 3".
        remedy: its end.
    """
    with _watched(function):
        try:
            yield
        except KeyboardInterrupt:
            raise
        except UserCodeError as error:  # of a function within: this message knows more
            place = error.place or place_of(function)
            raise UserCodeError(failed, error.cause, place, remedy) from error
        except MemoryError as error:
            raise MachineError(
                f"{failed}, as there was not enough memory "
                f"({_line_in(error, function) or place_of(function)}): let it use less"
            ) from error
        except BaseException as error:
            place = _line_in(error, function) or place_of(function)
            raise UserCodeError(failed, cause_of(error), place, remedy) from error


def finished(result: Any) -> Any:
    """What a user's function returned, unless it is something that would still have to run."""
    if isinstance(result, Coroutine | Generator):
        result.close()
        raise TypeError(f"it returned a {type(result).__name__} in place of a value")
    return result


def blamed(error: BaseException) -> UserCodeError | None:
    """The error as the user's own, if it was raised by a file that `load_object` ran.

    For the outermost handler: methods of a user's own classes are called in many places.
    """
    if isinstance(error, InputError | KeyboardInterrupt):
        return None
    place = _line_in(error, None)
    return UserCodeError("your code failed", cause_of(error), place, "mend it") if place else None


def place_of(function: object) -> str:
    """Where a function is defined, as "line 3 of dynamics.py"; empty if that is not known."""
    code = _code(function)
    return "" if code is None else f"line {code.co_firstlineno} of {_shown(code.co_filename)}"


def interrupt_calls() -> None:
    """End users' functions that still run in other threads, as Ctrl-C would in the main one."""
    now, here = time.monotonic(), threading.get_ident()
    for call in list(_RUNNING.values()):
        if call.thread != here and now - call.began > LOOK:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(call.thread), ctypes.py_object(KeyboardInterrupt)
            )


def _code(function: object) -> CodeType | None:
    while isinstance(function, partial):
        function = function.func
    with suppress(Exception):  # a user's object may do anything when it is looked at
        function = getattr(function, "__func__", function)
        function = inspect.unwrap(function)  # type: ignore[arg-type]
        if not inspect.isroutine(function):
            function = type(function).__call__
        code: CodeType = function.__code__
        return None if code.co_filename.startswith(_OURS) else code
    return None


def _line_in(error: BaseException, function: object) -> str:
    """The innermost line of the user's code that an error passed through."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"line {error.lineno} of {_shown(error.filename)}"
    code, found, trace = _code(function), "", error.__traceback__
    own = code.co_filename if code else ""
    entered = not own  # what comes before the function is who called it
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        entered |= file == own
        users = file == own or (_is_users(file) if function is not None else _was_loaded(file))
        if entered and users:
            found = f"line {trace.tb_lineno} of {_shown(file)}"
        trace = trace.tb_next
    return found


def _is_users(file: str) -> bool:
    return not file.startswith((*_LIBRARIES, "<frozen"))


def _was_loaded(file: str) -> bool:
    beside = any(Path(file).is_relative_to(folder) for folder in _BESIDE.values())
    return file in _LOADED or (beside and _is_users(file))


def _shown(file: str) -> str:
    return file if file.startswith("<") else shown(Path(file))


@dataclass
class _Call:
    """A user's function that runs now."""

    what: str
    began: float = field(default_factory=time.monotonic)
    thread: int = field(default_factory=threading.get_ident)
    told: float = 0.0
    """Seconds after which it was last named."""


_RUNNING: dict[int, _Call] = {}
_watching = threading.Lock()


@contextmanager
def _watched(function: object) -> Iterator[None]:
    """Have a function named on stderr while it runs for long."""
    name = getattr(function, "__qualname__", type(function).__name__)
    place = place_of(function)
    call = _Call(f"{name} ({place})" if place else str(name))
    _RUNNING[id(call)] = call
    if _watching.acquire(blocking=False):  # the thread that watches keeps it for good
        threading.Thread(target=_watch, name="user code", daemon=True).start()
    try:
        yield
    finally:
        del _RUNNING[id(call)]


def _watch() -> None:
    while True:
        time.sleep(LOOK)
        for call in list(_RUNNING.values()):
            lasted = time.monotonic() - call.began
            if lasted >= max(PATIENCE, 2 * call.told):
                call.told = lasted
                with suppress(Exception):  # stderr may be closed, or on a full disk
                    print(
                        f"{call.what} has been running for {lasted:.0f} s and has not returned",
                        file=sys.stderr,
                        flush=True,
                    )


@lru_cache(maxsize=64)
def _run(path: Path, changed: int, size: int) -> ModuleType:
    """Run a file; once, as long as it stays as it is, so that its functions are the same."""
    del changed, size
    mark = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:12]
    loader = _FromSource(f"fedkoopman_user_{path.stem}_{mark}", str(path))
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for the names in annotations
    _LOADED.add(str(path))
    try:
        failed = f"running {shown(path)} failed"
        with calling(_File(path), failed, "mend the file"), _as_program(path.parent):
            loader.exec_module(module)
    except BaseException:
        del sys.modules[loader.name]
        raise
    return module


class _File:
    """A file that runs, as `calling` names it."""

    def __init__(self, path: Path) -> None:
        self.__qualname__ = shown(path)


class _FromSource(SourceFileLoader):
    """Compiles what the file holds now.

    Compiled code kept beside it would differ in size and second only, and leave a directory where
    the user expects none.
    """

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


@contextmanager
def _as_program(folder: Path) -> Iterator[None]:
    """Let a file import what is beside it, as a program can.

    Two sites may each have an `optics.py`: what the other imported under a name that is also found
    here is forgotten.
    """
    for name in list(_BESIDE):
        if _BESIDE[name] != folder and any(
            (folder / f"{name}{end}").exists() for end in ("", ".py")
        ):
            sys.modules.pop(name, None)
            del _BESIDE[name]
    before, writes = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        with suppress(ValueError):  # the file may have changed the path
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                _BESIDE[name] = folder
