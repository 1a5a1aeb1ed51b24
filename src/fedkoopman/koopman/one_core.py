"""`one_core` is in `fedkoopman.compilation`."""

from fedkoopman.compilation import one_core

__all__ = ["one_core"]
