"""How an interrupted verb says what it saved."""


class Interrupted(Exception):
    """The user stopped the program; the message says what was saved and how to go on."""
