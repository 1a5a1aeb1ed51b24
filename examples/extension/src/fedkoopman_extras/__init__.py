"""One new member for every registry of fedkoopman, each in a file of its own."""
