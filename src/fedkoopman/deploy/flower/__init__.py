"""Flower: its programs as we start them, and the way of a message between server loop and agent."""
