"""Events, metrics and logs as they are recorded, and what is made of them. It imports nothing of the engine."""
