"""What of `ray.serve._private` of Ray 2.60 the programs of its documentation use."""
