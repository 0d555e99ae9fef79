"""To which node this process is attached, as whom, and what it asks there."""
