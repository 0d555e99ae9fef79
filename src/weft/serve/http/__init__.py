"""The HTTP front. Nothing here but `front.py` and `ingress.py`, when they run, needs a web library."""
