"""Actors: their classes and handles at the caller, their instance and its calls in the worker."""
