"""`ray.tune.search.basic_variant` of Ray 2.60."""

from weft.tune.search import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
