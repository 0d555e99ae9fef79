"""Values and refs: bytes and back, what a ref can do, values that outlive their node."""
