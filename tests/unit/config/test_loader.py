"""TOML is read within bounds: nothing in a file exceeds Python's stack or its integers."""

import pytest

from fedkoopman.config.loader import BITS, DEEPEST, parse_toml, value_of


def lists(depth: int) -> str:
    return "a = " + "[" * depth + "]" * depth


TOO_DEEP = {
    "lists": lists(DEEPEST + 1),
    "lists beyond the parser's stack": lists(100_000),
    "inline tables": "a = " + "{a = " * 300 + "1" + "}" * 300,
    "dotted key": ".".join("a" * 3000) + " = 1",
    "header": "[" + ".".join("a" * 1000) + "]\nx = 1",
    "mixed": "a = [{b = " + "[" * 200 + "]" * 200 + "}]",
}


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {DEEPEST} deep") as caught:
        parse_toml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "digits", ["9" * 5000, "-" + "9" * 100_000, "0x" + "f" * 5000, "0b1" + "0" * 5000]
)
@pytest.mark.parametrize("form", ["a = {}", "a = [[{}]]", "a = {{b = {}}}", "[[a]]\nb = [1, {}]"])
def test_integers_that_cannot_be_printed_are_refused(form: str, digits: str) -> None:
    with pytest.raises(ValueError, match=f"write at most {BITS}"):
        parse_toml(form.format(digits))


def test_all_else_is_read() -> None:
    assert parse_toml(lists(DEEPEST)) is not None
    assert parse_toml(f"a = {2**63 - 1}\nb = {-(10**400)}\nc = 1e300") == {
        "a": 2**63 - 1,
        "b": -(10**400),
        "c": 1e300,
    }


@pytest.mark.parametrize("text", ["[" * 400 + "]" * 400, "9" * 5000, "0x" + "f" * 5000, "[" * 9000])
def test_on_the_command_line_it_stays_text_or_becomes_a_float(text: str) -> None:
    """And the key's rule refuses it by its name."""
    assert isinstance(value_of(text), str | float)
