"""BDF files, which are EDF files of 24 bits."""

from fedkoopman.data.formats.edf import Edf

FORMAT = Edf
