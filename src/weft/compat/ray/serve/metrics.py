"""`ray.serve.metrics` of Ray 2.60: those of `ray.util.metrics`."""

from weft.util.metrics import Counter, Gauge, Histogram

__all__ = ["Counter", "Gauge", "Histogram"]
