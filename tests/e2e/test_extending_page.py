"""docs/extending.md shows the example's files as they are, and names what exists."""

import re
import tomllib

import pytest
from reference.extension import EXTENSION, file_of
from reference.federations import experiment, final, model_bytes, run

from fedkoopman.config.formats import FORMATS
from fedkoopman.estimation import ESTIMATORS
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.combining import without_memory
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import SYSTEMS

REPOSITORY = EXTENSION.parents[1]
PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
FEDERATION = (POLICIES, AGGREGATORS, SERVER_STEPS, ALGORITHMS)
REGISTRIES = (SYSTEMS, SENSORS, ESTIMATORS, *FEDERATION, KINDS, FORMATS)
POINTS = tomllib.loads((EXTENSION / "pyproject.toml").read_text())["project"]["entry-points"]
SHOWN = dict(re.findall(r"^\[`(\w+)\.py`\]\(\S+\):\n\n```python\n(.*?)^```", PAGE, re.M | re.S))


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.attribute)
def test_every_registry_has_a_member_in_the_example_which_the_page_shows(registry) -> None:
    [(_, value)] = POINTS[registry.group].items()
    module, attribute = value.removeprefix("fedkoopman_extras.").split(":")
    assert attribute == registry.attribute
    shown = SHOWN[module]
    assert shown == file_of(module).read_text(encoding="utf-8"), (
        f"docs/extending.md shows an old {module}.py: copy the file into the page"
    )
    assert 15 <= len(shown.splitlines()) <= 110
    folder = registry.home.removeprefix("fedkoopman.").replace(".", "/")
    row = rf"\| `{registry.group}` \| `{folder}/` \| `{attribute}` \| `(test_\w+\.py)` \|"
    [suite] = re.findall(row, PAGE)
    laws = (REPOSITORY / "tests" / "laws" / suite).read_text(encoding="utf-8")
    assert any(way in laws for way in (f'member("{module}"', f"file_of('{module}')"))


def test_the_rule_with_a_memory_works_as_it_is_printed() -> None:
    [code] = re.findall(r"^```python\n(import numpy.*?class Furthest.*?)^```", PAGE, re.M | re.S)
    namespace: dict = {}
    exec(code, namespace)
    e = experiment(aggregator=namespace["AGGREGATOR"])
    told = [outcome.record["furthest"] for outcome in run(e) if outcome.record["active"]]
    assert told and set(told) <= {0, 1, 2}
    model = without_memory(run(e)[-1].state.arrays)
    assert model_bytes(model) == final(run(experiment()))  # the mean's


def test_the_page_and_the_package_have_nothing_else() -> None:
    files = {path.stem for path in file_of("linear").parent.glob("*.py")} - {"__init__"}
    assert set(SHOWN) == files and set(POINTS) == {registry.group for registry in REGISTRIES}
