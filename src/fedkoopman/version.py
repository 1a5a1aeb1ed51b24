"""The version of the package; files that outlive a process name it."""

__version__ = "0.3.0"
