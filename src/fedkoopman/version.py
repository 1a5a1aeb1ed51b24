"""The version of the package, and the version whose numbers it computes."""

__version__ = "0.5.0"

NUMERICS = "0.5.0"
"""The first version that computes bit for bit what this one computes.

Run directories, kits and messages name it, and two versions that share it work together. Set it to
`__version__` in a change after which an existing study gives other numbers.
"""
