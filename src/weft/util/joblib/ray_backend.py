"""The backend under Ray's name and place."""

from weft.util.joblib.backend import WeftBackend as RayBackend

__all__ = ["RayBackend"]
