"""HDF5 files with their long suffix."""

from fedkoopman.data.hdf5 import Hdf5

FORMAT = Hdf5
