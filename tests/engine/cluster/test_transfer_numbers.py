"""Numbers of transfers between nodes at the end of their 32 bits."""

from __future__ import annotations

from weft.engine.cluster.pulls import TransferNumbers
from weft.engine.wire.link import CHUNK_HEAD


def test_numbers_are_given_again_when_all_were_and_never_one_that_is_in_use() -> None:
    numbers = TransferNumbers(most=4)
    assert [numbers.next(()) for _ in range(4)] == [1, 2, 3, 4]
    assert [numbers.next({1, 3}) for _ in range(4)] == [2, 4, 2, 4]


def test_every_number_fits_into_a_chunks_head() -> None:
    numbers = TransferNumbers()
    numbers._last = 0xFFFFFFFE
    for number in (0xFFFFFFFF, 1):
        assert numbers.next(()) == number
        assert CHUNK_HEAD.unpack(CHUNK_HEAD.pack(number, 0)) == (number, 0)
