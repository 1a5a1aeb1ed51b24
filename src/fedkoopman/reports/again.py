"""How to repeat a run: commands, and the whole study."""

from fedkoopman.reports.blocks import Section, code, section, text
from fedkoopman.reports.run_files import RunFiles

__all__ = ["again_section"]


def again_section(run: RunFiles) -> Section:
    """The commands, and the study as it stands in the directory."""
    if run.served:
        how = "To serve it again, where its fleet is; its sites join as before:"
        commands = ["fedkoopman serve study.toml --out again"]
    else:
        how = "To run it again, in this report's directory:"
        numbers = sorted([*(seed.seed for seed in run.seeds), *run.waiting])
        commands = _commands(numbers, run.study.get("seed", 0))
    return section(
        "again", "How to repeat it", text(how, "caption"), code("\n".join(commands)),
        code(run.toml.strip(), folded="The whole study (study.toml)"),
    )  # fmt: skip


def _commands(seeds: list[int], default: int) -> list[str]:
    """Commands that run the same seeds: one, unless there are gaps between them."""
    whole = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    commands = []
    for first in seeds[:1] if whole else seeds:
        command = "fedkoopman run study.toml"
        if first != default:
            command += f" --set seed={first}"
        if whole and len(seeds) > 1:
            command += f" --seeds {len(seeds)}"
        commands.append(f"{command} --out {'again' if whole else f'again-{first}'}")
    return commands
