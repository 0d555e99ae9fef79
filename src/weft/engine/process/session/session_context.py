"""What `init` returns: the session's addresses, also as a mapping, and a way to end it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from weft import _native


class SessionContext:
    """Of one session. As a context manager it ends the session.

    >>> with weft.init(num_cpus=1) as context:
    ...     context["node_id"] == context.address_info["node_id"]
    True
    """

    def __init__(self, address: str, node_id: str, node_ip: str, namespace: str, end: Callable[[], None]) -> None:
        self.python_version = ".".join(map(str, sys.version_info[:3]))
        self.namespace = namespace
        self._end = end
        self.address_info: dict[str, Any] = {
            "address": address,
            "node_id": node_id,
            "node_ip_address": node_ip,
            "gcs_address": address,
            "session_name": session_name(node_id),
            "session_dir": os.path.join(_temporary_folder(), session_name(node_id)),
            "webui_url": None,
        }

    @property
    def dashboard_url(self) -> str | None:
        """Where the dashboard is, with its token; it listens from the first time that it is asked for.

        None where there is none: in local_mode, or when the session is over."""
        from weft.engine.process.session import context_state, rpc

        if context_state.state.local is not None or not _native.is_attached():
            return None
        return str(rpc.request("dashboard")["url"])

    @property
    def weft_version(self) -> str:
        import importlib.metadata

        return importlib.metadata.version("weft")

    ray_version = weft_version

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __contains__(self, key: object) -> bool:
        return key in self.address_info

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def get(self, key: str, default: Any = None) -> Any:
        return self.address_info.get(key, default)

    def keys(self) -> Any:
        return self.address_info.keys()

    def items(self) -> Any:
        return self.address_info.items()

    def disconnect(self) -> None:
        """End the session."""
        self._end()

    def __enter__(self) -> SessionContext:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _repr_html_(self) -> str:
        """For notebooks."""
        import html

        url = html.escape(self.dashboard_url or "", quote=True)
        link = f', <a href="{url}" target="_blank" rel="noreferrer">dashboard</a>' if url else ""
        return f"<b>Weft</b> at <code>{html.escape(self['address'])}</code>{link}"

    def __repr__(self) -> str:
        return f"SessionContext(address={self['address']!r}, node_id={self['node_id']!r})"


def session_name(node_id: str) -> str:
    """One word for the session; a folder of that name is never made, since nothing is left on disk."""
    return f"weft-session-{node_id[:16]}"


def _temporary_folder() -> str:
    named = (os.environ.get(name) for name in ("WEFT_TMPDIR", "RAY_TMPDIR", "TMPDIR"))
    return next((folder for folder in named if folder), "/tmp")
