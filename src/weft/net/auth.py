"""How two nodes make sure of each other before anything is decoded: same protocol, same token.

Pure: bytes in, bytes out. Fixed-size fields only, so that a stranger's bytes meet no parser:

    connector -> acceptor   magic, version, a random challenge
    acceptor -> connector   magic, version, a random challenge
    connector -> acceptor   HMAC(token, "connector", both challenges, the binding)
    acceptor -> connector   "Y", HMAC(token, "acceptor", likewise); or "N", the length of a reason, the reason

Each proves that it has the token and neither sends it. The binding is the digest of the acceptor's certificate (`tls`):
so nobody can sit in between. Over a local socket, where nobody can, it is a word that no certificate has (`endpoint`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct

from weft.net.shown import printable

MAGIC = b"WEFTLINK"
VERSION = 7
_OPENING = struct.Struct("<8sH32s")
_PROOF_BYTES = 32
_REASON = struct.Struct("<H")
_LONGEST_REASON = 500


READ_ONLY = b"ro-"
"""How a token begins that only reads."""


class Refused(Exception):
    """The other side is none of ours, or says that we are none of its; the message says why."""


def read_only(token: bytes) -> bytes:
    """The token that lets its holder look at a cluster and change nothing; the cluster's own cannot be had from it."""
    return READ_ONLY + hmac.new(token, b"weft: may only read", hashlib.sha256).hexdigest().encode()


class Handshake:
    """One side of it. Feed what comes, send what `take_output` gives, until `is_done`."""

    def __init__(self, token: bytes, accepts: bool, binding: bytes = b"", reads: bool = False) -> None:
        """`reads`: of an acceptor that also takes those with the read-only token."""
        self._token = token
        self._reader = read_only(token) if reads else b""
        self.is_read_only = False
        """Whether the other side has proved no more than the read-only token."""
        self._binding = binding
        self._accepts = accepts
        self._challenge = os.urandom(32)
        self._theirs = b""
        self._input = b""
        self._output = _OPENING.pack(MAGIC, VERSION, self._challenge)
        self.is_done = False

    def take_output(self) -> bytes:
        out, self._output = self._output, b""
        return out

    @property
    def wanted(self) -> int:
        """So many bytes are certainly still of the handshake: who reads no more reads nothing that follows it."""
        if not self._theirs:
            return _OPENING.size - len(self._input)
        return max(1, _PROOF_BYTES + (0 if self._accepts else 1) - len(self._input))

    def feed(self, data: bytes) -> bytes:
        """What follows the handshake, once it is done. Raises Refused; send the rest of the output then, too."""
        self._input += data
        if not self._theirs and not self._open():
            return b""
        if self._accepts:
            self._check_connector()
        else:
            self._check_answer()
        if not self.is_done:
            return b""
        rest, self._input = self._input, b""
        return rest

    def _open(self) -> bool:
        start = self._input[: len(MAGIC)]
        if start != MAGIC[: len(start)]:
            raise Refused("the other side does not speak Weft's protocol")
        if len(self._input) < _OPENING.size:
            return False
        _, version, self._theirs = _OPENING.unpack_from(self._input)
        self._input = self._input[_OPENING.size :]
        if version != VERSION:
            text = f"one side speaks version {VERSION} of the link, the other {version}: run the same Weft on all nodes"
            self._refuse(text)
        if not self._accepts:
            self._output += self._proof(b"connector", self._challenge, self._theirs)
        return True

    def _check_connector(self) -> None:
        if len(self._input) < _PROOF_BYTES:
            return
        proof, self._input = self._input[:_PROOF_BYTES], self._input[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, self._proof(b"connector", self._theirs, self._challenge)):
            if not self._reader:
                self._refuse("the token is wrong")
            self._token, self.is_read_only = self._reader, True
            if not hmac.compare_digest(proof, self._proof(b"connector", self._theirs, self._challenge)):
                self._refuse("the token is wrong")
        self._output += b"Y" + self._proof(b"acceptor", self._theirs, self._challenge)
        self.is_done = True

    def _check_answer(self) -> None:
        if self._input[:1] == b"N" and len(self._input) >= 1 + _REASON.size:
            (length,) = _REASON.unpack_from(self._input, 1)
            text = self._input[1 + _REASON.size :]
            if len(text) >= length:
                raise Refused(printable(text[:length].decode("utf-8", "replace"), _LONGEST_REASON))
        elif self._input[:1] == b"Y" and len(self._input) > _PROOF_BYTES:
            proof, self._input = self._input[1 : 1 + _PROOF_BYTES], self._input[1 + _PROOF_BYTES :]
            if not hmac.compare_digest(proof, self._proof(b"acceptor", self._challenge, self._theirs)):
                raise Refused("the other side does not have the token")
            self.is_done = True
        elif self._input and self._input[:1] not in b"YN":
            raise Refused("the other side does not speak Weft's protocol")

    def _refuse(self, text: str) -> None:
        if self._accepts:
            data = text.encode()
            self._output += b"N" + _REASON.pack(len(data)) + data
        raise Refused(text)

    def _proof(self, role: bytes, connector: bytes, acceptor: bytes) -> bytes:
        return hmac.new(self._token, role + connector + acceptor + self._binding, hashlib.sha256).digest()
