"""The command line: `weft start`, `weft stop`, `weft status`."""
