"""Takes over a certificate and its key when their files were replaced. Runs on the front's loop."""

from __future__ import annotations

import os
import ssl

__all__ = ["Certificates"]


class Certificates:
    """Of a server's context: connections that come later have the new ones, those that are there go on."""

    def __init__(self, context: ssl.SSLContext, certfile: str, keyfile: str) -> None:
        self._context = context
        self._files = (certfile, keyfile)
        self._seen = self._stamps()

    def look(self) -> None:
        """A pair that does not fit, as while one of the two is replaced, changes nothing until it does."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)  # a bad one would spoil the context
            self._context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            print(f"weft.serve: {self._files[0]} and {self._files[1]} are not used, the last good ones are: {error}")

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
