"""Studies: sites' files in, runs and the paper's tables out."""
