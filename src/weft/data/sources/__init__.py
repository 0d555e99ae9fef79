"""Where rows come from: one file a format."""
