"""gRPC beside HTTP: the same deployments, called by the methods of a service's own protocol."""
