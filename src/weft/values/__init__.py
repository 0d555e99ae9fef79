"""Python values to bytes and back, with the buffers of known libraries uncopied. It knows no task and no session."""
