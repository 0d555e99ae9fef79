"""Memory of devices: who holds it for the objects that name it, and how another process reads it."""
