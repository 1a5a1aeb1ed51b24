"""One new member for every registry of fedkoopman, each in a file of its own.

`pyproject.toml` names them as entry points, by which fedkoopman finds them.
"""
