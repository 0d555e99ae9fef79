"""What RLlib calls the core: its modules."""
