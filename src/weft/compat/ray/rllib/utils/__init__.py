"""Names that programs for RLlib import."""
