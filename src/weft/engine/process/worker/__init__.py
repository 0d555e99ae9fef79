"""A worker process from its fork to its end."""
