"""See `weft.util.state`."""
