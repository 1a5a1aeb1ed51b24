"""The command line: one file per verb, each of which loads what it needs when it runs."""

from fedkoopman.cli.app import main

__all__ = ["main"]
