"""Environments, as RLlib makes them."""
