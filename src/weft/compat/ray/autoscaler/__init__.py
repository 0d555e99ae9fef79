"""`ray.autoscaler`, as far as it makes sense: Weft starts no machines; who runs them adds nodes with `ray start`."""
