"""Notices that a certificate and its key were replaced in their files. Runs on the loop, or the threads, of a front."""

from __future__ import annotations

import os
import ssl

__all__ = ["Certificates"]


class Certificates:
    """Of a front: connections that come later have the new ones, those that are there go on."""

    def __init__(self, *files: str) -> None:
        """The certificate, the key, and perhaps the authorities of clients: PEM files."""
        self._files = tuple(filter(None, files))
        self._seen = self._stamps()

    def renewed(self) -> ssl.SSLContext | None:
        """What to accept by from now on, where the files are others since the last time. A pair that does not fit, as
        while one of the two is replaced, changes nothing until it does."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self._seen = stamps
        certificate, key, *authorities = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key)
            for path in authorities:
                context.load_verify_locations(path)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            print(f"weft.serve: {' and '.join(self._files)} are not used, the last good ones are: {error}")
            return None
        return context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
