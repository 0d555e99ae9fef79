"""Which connection that has proved nothing gives way to the next."""

from __future__ import annotations

from types import SimpleNamespace

from weft.net.strangers import Strangers


class Link:
    def __init__(self, host: str, is_encrypted: bool = False, is_strange: bool = True, sent: bytes = b"") -> None:
        socket = SimpleNamespace(getpeername=lambda: (host, 1), recv=lambda *_: sent)
        self.connection = SimpleNamespace(socket=socket, is_encrypted=is_encrypted, is_strange=is_strange)
        self.is_closed = False

    def close(self, reason: str = "") -> None:
        self.is_closed = True


def add(strangers: Strangers, *links: Link) -> None:
    for link in links:
        strangers.add(link)  # type: ignore[arg-type]


def test_a_crowd_of_one_address_pushes_out_its_own_and_nobody_of_another() -> None:
    strangers, honest = Strangers(4), Link("10.0.0.2")
    crowd = [Link("10.0.0.1") for _ in range(20)]
    add(strangers, honest, *crowd)
    assert not honest.is_closed
    assert [link.is_closed for link in crowd] == [True] * 17 + [False] * 3


def test_some_of_a_large_crowd_give_way_at_once() -> None:
    strangers, honest = Strangers(64), Link("10.0.0.2")
    crowd = [Link("10.0.0.1") for _ in range(64)]
    add(strangers, honest, *crowd)
    assert not honest.is_closed
    assert [link.is_closed for link in crowd] == [True] * 4 + [False] * 60


def test_who_only_knocks_gives_way_to_who_has_begun_to_encrypt() -> None:
    strangers, honest = Strangers(4), Link("10.0.0.1", is_encrypted=True)
    add(strangers, honest, *[Link("10.0.0.1") for _ in range(20)])
    assert not honest.is_closed


def test_who_only_knocks_gives_way_to_who_has_sent_what_is_not_read_yet() -> None:
    strangers, honest = Strangers(4), Link("10.0.0.1", sent=b"\x16")
    add(strangers, honest, *[Link("10.0.0.1") for _ in range(20)])
    assert not honest.is_closed


def test_who_has_proved_the_token_or_has_left_takes_no_place() -> None:
    strangers, proved = Strangers(2), Link("10.0.0.1")
    add(strangers, proved)
    proved.connection.is_strange = False
    left = Link("10.0.0.1")
    add(strangers, left)
    left.close()
    last = [Link("10.0.0.1"), Link("10.0.0.1")]
    add(strangers, *last, Link("10.0.0.1", is_strange=False))
    assert not proved.is_closed and not any(link.is_closed for link in last)


def test_who_has_an_address_for_each_knock_keeps_nobody_from_encrypting() -> None:
    strangers, honest = Strangers(4), Link("10.0.0.1", is_encrypted=True)
    add(strangers, honest, *[Link(f"10.0.1.{n}") for n in range(20)])
    assert not honest.is_closed


def test_all_addresses_of_loopback_are_one() -> None:
    strangers, honest = Strangers(4), Link("10.0.0.1")
    crowd = [Link(f"127.0.1.{n}") for n in range(20)]
    add(strangers, honest, *crowd)
    assert not honest.is_closed
