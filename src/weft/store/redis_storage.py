"""Storage in Redis or Valkey: a hash for each table of the shard, and an entry as one transaction with its number.

    redis://host:port/0                      all shards on one server
    redis://one:6379,two:6379                shards in turn on several
    redis://one:6379|one-replica:6379        a server with one to fail over to, which it replicates to

`redis+unix:///path` and `rediss://` work, too. Needs the extra `weft[redis]`. Where there is something to fail over to,
the one that is a primary is used, whichever it is; while a replica is linked to it, an entry counts as stored once that
has it. Where no primary answers, the replica that has most is made one. The replaced one must not come back as a
primary by itself, but may as a replica.

Rows that nobody can use after their server's end expire some time after it, however it ended. Should they be gone while
they are still wanted (the server stood still for that long, somebody emptied Redis), nothing is read or
written any more: StorageDamaged.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from weft.store.state.chain_messages import Entry
from weft.store.state.chain_rows import Key, Row
from weft.store.storage import PIECE_BYTES, StorageDamaged, StorageRefused

TIMEOUT_S = 5.0
REPLICATION_MS = 1000
EXPIRES_S = 3600
REFRESH_S = 600.0
_STEP = 20
"""Rows read at once while copying."""
_PLACE = re.compile(r"(\[[\da-fA-F:.]*\]|[\w.\-]*)(:\d+)?(/[^@]*)?(\?[^@]*)?")
T = TypeVar("T")


def masked(url: str) -> str:
    """Without the passwords, for people.

    >>> masked("redis://:secret@one:6379|one-replica:6379,user:secret@two:6379/0?password=secret&db=1")
    'redis://:***@one:6379|one-replica:6379,user:***@two:6379/0?password=***&db=1'
    """
    scheme, mark, rest = url.partition("://")
    parts = re.split(r"([,|])", re.sub(r"(password=)[^&,|]*", r"\1***", rest))
    for at in range(0, len(parts), 2):
        login, sign, place = parts[at].rpartition("@")
        user = f"{login.partition(':')[0]}:" if ":" in login else ""
        # What looks like no address may be a piece of a password that should have been written otherwise.
        parts[at] = f"{user}***@{place}" if sign else place if _PLACE.fullmatch(place) else "***"
    return f"{scheme}{mark}{''.join(parts)}"


def servers_of(url: str, shard: int) -> list[str]:
    """The addresses for one shard, the first one first.

    >>> servers_of("redis://a:1|b:1,c:1", 0), servers_of("redis://a:1|b:1,c:1", 1)
    (['redis://a:1', 'redis://b:1'], ['redis://c:1'])
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("redis", "rediss", "redis+unix", "unix") or not rest:
        raise ValueError(f"a store must be redis://host:port[,host:port], but got {masked(url)!r}")
    scheme = "unix" if scheme == "redis+unix" else scheme
    groups = rest.split(",")
    return [f"{scheme}://{one}" for one in groups[shard % len(groups)].split("|")]


class RedisStorage:
    """The rows of one shard."""

    def __init__(self, url: str, shard: int, prefix: str = "weft", expires_s: int = 0) -> None:
        """Raises StorageRefused when no server answers. `expires_s`: how long rows stay that nobody refreshes; 0: for
        ever."""
        try:
            import redis
        except ImportError as error:
            raise ValueError("a store in Redis needs the package redis: pip install 'weft[redis]'") from error
        self._redis = redis
        self._servers = servers_of(url, shard)
        self._prefix = f"{prefix}:{shard}"
        self._client: Any = None
        self._address = ""
        """Of the server that is used."""
        self._keys: list[Key] | None = None
        self._expires_s = expires_s
        self._refresh_at = time.monotonic() + REFRESH_S
        self._applied = self._number(self._try(lambda: self._client.get(f"{self._prefix}:applied")))

    @property
    def applied(self) -> int:
        return self._applied

    # ---- reading ----

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.read([(table, key)])[0]

    def read(self, keys: Sequence[Key]) -> list[bytes | None]:
        def ask() -> list[bytes | None]:
            pipe = self._client.pipeline(transaction=False)
            for table, key in keys:
                pipe.hget(self._name(table), key)
            pipe.get(f"{self._prefix}:applied")
            found: list[bytes | None] = pipe.execute()
            self._check_applied(found.pop())
            return found

        return self._try(ask) if keys else []

    def scan(self, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        rows = self._try(lambda: list(self._client.hscan_iter(self._name(table), count=1000)))
        self._check_applied(self._try(lambda: self._client.get(f"{self._prefix}:applied")))
        return sorted({key: value for key, value in rows if key.startswith(prefix)}.items())

    def rows_after(self, after: Key | None) -> tuple[list[Row], Key | None]:
        if after is None or self._keys is None:
            self._keys = sorted((table, key) for table in self._tables() for key in self._hash_keys(table))
        left = self._keys if after is None else [key for key in self._keys if key > after]
        found: list[Row] = []
        size = 0
        for at in range(0, len(left), _STEP):
            part = left[at : at + _STEP]
            for key, value in zip(part, self.read(part), strict=True):
                if value is not None:
                    found.append((*key, value))
                    size += len(key[1]) + len(value)
            if size > PIECE_BYTES and at + _STEP < len(left):
                return found, part[-1]
        self._keys = None
        return found, None

    def statistics(self) -> dict[str, int]:
        return {table: len(self._hash_keys(table)) for table in self._tables()}

    # ---- writing ----

    def apply(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        assert entries[0].seq == self._applied + 1, f"entry {entries[0].seq} after {self._applied}"
        last = entries[-1].seq
        changes = [change for entry in entries for change in entry.changes]
        self._write(changes, last)
        self._applied = last

    def load(self, rows: Sequence[Row], is_first: bool, applied: int | None) -> None:
        if is_first:
            self.clear()
        self._write(rows, -1 if applied is None else applied)
        self._applied = -1 if applied is None else applied

    def _write(self, changes: Iterable[tuple[str, bytes, bytes | None]], applied: int) -> None:
        changes = list(changes)

        def send() -> None:
            before = self._client.get(f"{self._prefix}:applied")
            if self._number(before) != applied:
                self._check_applied(before)
            elif applied != -1:
                return  # the answer to an earlier try was lost
            tables = {table for table, _, _ in changes}
            pipe = self._client.pipeline(transaction=True)
            if tables:
                pipe.sadd(f"{self._prefix}:tables", *tables)
            for table, key, value in changes:
                if value is None:
                    pipe.hdel(self._name(table), key)
                else:
                    pipe.hset(self._name(table), key, value)
            pipe.set(f"{self._prefix}:applied", applied)
            self._refresh(pipe, tables)
            pipe.execute()
            if len(self._servers) > 1 and self._role()[2]:  # else there is no replica to wait for
                self._client.wait(1, REPLICATION_MS)

        self._try(send)

    def _check_applied(self, stored: bytes | None) -> None:
        if self._number(stored) != self._applied:
            raise StorageDamaged(
                f"the rows of {self._prefix} in {masked(self._address)} are gone or others: entry {self._applied} was "
                f"stored last, and now it is {self._number(stored)}"
            )

    def _number(self, stored: bytes | None) -> int:
        try:
            return int(stored or 0)
        except ValueError as error:
            raise StorageDamaged(
                f"{self._prefix}:applied in {masked(self._address)} is no number: {stored!r}"
            ) from error

    def _refresh(self, pipe: Any, tables: Iterable[str]) -> None:
        if self._expires_s:
            for name in (*map(self._name, tables), f"{self._prefix}:tables", f"{self._prefix}:applied"):
                pipe.expire(name, self._expires_s)

    def tick(self) -> None:
        if not self._expires_s or time.monotonic() < self._refresh_at:
            return
        self._refresh_at = time.monotonic() + REFRESH_S
        tables = self._tables()

        def send() -> None:
            pipe = self._client.pipeline(transaction=False)
            self._refresh(pipe, tables)
            pipe.execute()

        self._try(send)

    def clear(self) -> None:
        names = [self._name(table) for table in self._tables()]
        self._try(lambda: self._client.delete(*names, f"{self._prefix}:tables", f"{self._prefix}:applied"))
        self._applied = 0

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- the server ----

    def _try(self, call: Callable[[], T]) -> T:
        """On the primary; and again, as it may have been replaced."""
        reasons: dict[str, None] = {}
        hanging = ""
        lost = (self._redis.ConnectionError, self._redis.TimeoutError, self._redis.exceptions.ReadOnlyError)
        for _ in range(2):
            try:
                if self._client is None:
                    self._connect([one for one in self._servers if one != hanging] or self._servers)
                return call()
            except lost as error:
                reasons[f"{masked(self._address)}: {error}"] = None
                hanging = self._address if isinstance(error, self._redis.TimeoutError) else ""
                with contextlib.suppress(self._redis.RedisError):
                    self.close()
                self._client = None
            except self._redis.ResponseError as error:
                raise StorageRefused(f"{masked(self._address)} refuses: {error}") from error
        raise StorageRefused("no server of the store answers: " + "; ".join(reasons))

    def _connect(self, servers: list[str]) -> None:
        """To the primary; where none answers, to the replica that has most."""
        replicas: list[tuple[int, str]] = []
        failure: Exception | None = None
        for address in servers:
            try:
                self._use(address)
                role = self._role()
            except (self._redis.ConnectionError, self._redis.TimeoutError) as error:
                failure = error
                continue
            if role[0] not in (b"slave", "slave") or len(self._servers) == 1:
                return
            replicas.append((role[4], address))
        if not replicas:
            assert failure is not None
            raise failure
        self._use(max(replicas)[1])
        self._client.execute_command("REPLICAOF", "NO", "ONE")

    def _use(self, address: str) -> None:
        self.close()
        self._address = address
        try:
            self._client = self._redis.Redis.from_url(
                address, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, decode_responses=False
            )
        except ValueError:  # whose text may have a part of the password
            raise ValueError(
                f"{masked(address)} is no address of a Redis; in a password, write /, @, : and such as %2F, %40, %3A"
            ) from None

    def _role(self) -> Any:
        """["master", offset, replicas] or ["slave", host, port, state, offset]."""
        return self._client.execute_command("ROLE")

    def _name(self, table: str) -> str:
        return f"{self._prefix}:rows:{table}"

    def _tables(self) -> list[str]:
        return sorted(name.decode() for name in self._try(lambda: self._client.smembers(f"{self._prefix}:tables")))

    def _hash_keys(self, table: str) -> list[bytes]:
        return list(self._try(lambda: self._client.hkeys(self._name(table))))
