"""Ray's addresses of a cluster, in Weft's form: HOST:PORT of the head.

Ray has a port for its client (10001) and one for its dashboard and jobs (8265); Weft has one for all, by default 6379.

>>> cluster_address("ray://10.0.0.1:10001"), cluster_address("http://10.0.0.1:8265"), cluster_address("auto")
('10.0.0.1:6379', '10.0.0.1:6379', 'auto')
>>> cluster_address("ray://10.0.0.1:7000"), cluster_address("10.0.0.1:10001")
('10.0.0.1:7000', '10.0.0.1:10001')
"""

from __future__ import annotations

import os

PORT = 6379
_SCHEMES = ("ray://", "http://", "https://")
_OTHER_PORTS = ("", "8265", "10001")
"""Which a cluster of Ray's has beside the head's."""


def cluster_address(address: str) -> str:
    """A port that is not one of Ray's defaults is taken for the cluster's own."""
    scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), None)
    if scheme is None:
        return address
    host, colon, port = address.removeprefix(scheme).rstrip("/").rpartition(":")
    if not colon:
        host, port = port, ""
    return f"{host or '127.0.0.1'}:{PORT if port in _OTHER_PORTS else port}"


def translate_variables() -> None:
    """RAY_ADDRESS and RAY_API_SERVER_ADDRESS, where they name a cluster in a way that Weft does not know."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        given = os.environ.get(name, "")
        if "://" in given and not os.environ.get("WEFT_ADDRESS"):
            os.environ["WEFT_ADDRESS"] = cluster_address(given)
