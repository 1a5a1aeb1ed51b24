"""Flower is told to be quiet in the tests' own process too, before anything loads it."""

from fedkoopman.deploy.flower.quiet import settle

settle()
