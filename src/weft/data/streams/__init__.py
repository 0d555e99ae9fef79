"""Unbounded data: operators that run until their sources end, with keyed state, event time and exact recovery."""
