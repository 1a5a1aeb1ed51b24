"""Flower: how its programs are started, and how messages get from server loop to agent and back."""
