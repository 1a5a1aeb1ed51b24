"""Which Python files a study names; told without loading JAX."""

from pathlib import Path

from fedkoopman.config.study import Study

__all__ = ["user_files"]


def user_files(study: Study) -> list[Path]:
    """Python files that a study names, relative to its folder."""
    sensors = study.clients.sensor
    tables = sensors if isinstance(sensors, tuple) else (sensors,)
    names = [study.system.name, study.policy.name, *(t.get("function", "") for t in tables)]
    return sorted({Path(name.rpartition(":")[0]) for name in names if ".py:" in name})
