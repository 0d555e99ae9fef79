"""Where Ray once kept what is now in `weft.util`; the names still work."""
