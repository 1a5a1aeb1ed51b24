"""Flower is told to be quiet in the tests' own process too, before anything loads it."""

from fedkoopman.deploy.transport.quiet import settle

settle()
