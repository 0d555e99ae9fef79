"""Checks that the options of the HTTP and the gRPC front share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.library.checks import above, is_number


def check_port(port: Any) -> None:
    """
    >>> check_port("http")
    Traceback (most recent call last):
    ValueError: port must be an integer from 0 to 65535, but got 'http'
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ValueError(f"port must be an integer from 0 to 65535, but got {port!r}")


def check_positive(options: Mapping[str, Any]) -> None:
    """
    >>> check_positive({"max_body_bytes": 0})
    Traceback (most recent call last):
    ValueError: max_body_bytes must be positive, but got 0
    """
    for name, value in options.items():
        if not is_number(value):
            raise ValueError(f"{name} must be a number, but got {value!r}")
        above(name, value)


def check_tls(certfile: str, keyfile: str, ca_certs: str) -> None:
    """Both of the pair are given, or none."""
    if bool(certfile) != bool(keyfile):
        raise ValueError("ssl_certfile and ssl_keyfile belong together, but only one of them is given")
    if ca_certs and not certfile:
        raise ValueError("ssl_ca_certs is for checking clients' certificates: give ssl_certfile and ssl_keyfile too")
