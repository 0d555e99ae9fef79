"""What a server of the control store and its clients decide. Pure: no I/O, no clock, no randomness."""
