"""Nothing but loopback is contacted, whatever library would like to: the system itself is asked."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from fedkoopman.deploy.provisioning.proxy import find_nginx

from .attacked import without_flower
from .federation import Federation, small_study

ADDRESS = re.compile(r'(?:inet_addr|inet_pton)\((?:AF_INET6, )?"([^"]+)"')


class Traced(Federation):
    """Every program under strace, which writes down to whom it and its children speak."""

    def _start(
        self,
        name: str,
        words: list[str],
        env: dict[str, str] | None = None,
        within: Iterable[str] = (),
    ) -> None:
        # -D leaves the program our own child; only these calls are stopped at.
        strace = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-e", "signal=none"]
        strace += ["-e", "trace=connect,sendto,sendmsg", "-o", str(self.folder / f"{name}.trace")]
        super()._start(name, words, env, [*strace, *within])


@pytest.mark.deploy
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed")
def test_no_system_call_leads_elsewhere(tmp_path: Path) -> None:
    federation = Traced(small_study(tmp_path / "field", slots=3))
    federation.env = without_flower()
    with federation.start():
        federation.finish()
    traces = {path.stem: path.read_text() for path in federation.folder.glob("*.trace")}
    assert set(traces) == {"serve", *federation.labs}
    for name, text in traces.items():
        found = set(ADDRESS.findall(text))
        assert found <= {"127.0.0.1", "::1"}, f"{name} spoke to {found}"
        assert found or name == "serve"  # which calls nobody, but for its own sockets
