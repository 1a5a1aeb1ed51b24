"""The paper's tables and figures, one file each: what is computed, and the paper's own numbers."""
