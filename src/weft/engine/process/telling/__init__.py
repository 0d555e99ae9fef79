"""What this process tells people: logs, progress, spans, metrics, and its answers to who looks at the cluster."""
