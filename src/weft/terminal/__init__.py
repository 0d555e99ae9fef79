"""What a person at a terminal sees of a running program: one line of status, and what workers write."""
