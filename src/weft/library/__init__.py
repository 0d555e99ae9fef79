"""What the six libraries stand on and share; for authors of libraries, not for users.

storage, checkpoint   where runs and their files lie
settings, checks      what can be told, its limits, and what was probably meant
lookup, tensorboard   results with keys in keys; results as event files
board, progress       a run on the dashboard's page and at the terminal, as often as somebody can read

It imports the public API and no library; libraries import it and not each other (`tests/test_house_rules.py`).
"""
