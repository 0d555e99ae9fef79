"""`ray.tune.integration` of Ray 2.60."""
