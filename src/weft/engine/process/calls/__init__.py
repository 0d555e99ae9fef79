"""Calling a remote function: what is checked and sent, what comes back, and what a failure leaves in its place."""
