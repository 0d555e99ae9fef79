"""Connections between processes, and who is at their other end. It knows no message and nothing of the engine."""
