"""Studies as runs: build, run, directories, sweeps and predictions."""
