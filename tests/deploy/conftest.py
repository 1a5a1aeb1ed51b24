"""Flower is told to be quiet in the tests' own process too, before anything loads it."""

from fedkoopman.deploy.flower.programs import configure_flower

configure_flower()
