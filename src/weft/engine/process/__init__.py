"""Inside a driver or a worker. `api` has the verbs; each folder is one room, and says what for."""
