"""Job numbers: no two drivers of a cluster get the same, however many there were."""

from __future__ import annotations

from weft.engine.state.jobs import JobNumbers
from weft.engine.state.membership import LAST_NUMBER
from weft.ids import JobID

MANY = 70_000


def test_a_node_with_more_drivers_than_16_bits_count_gives_no_number_of_the_next_node() -> None:
    nodes = {number: JobNumbers(number) for number in (0, 1, 2, 65_535, 65_536, LAST_NUMBER)}
    given = [numbers.next() for numbers in nodes.values() for _ in range(MANY)]
    assert len(set(given)) == len(given)
    assert all(int(float(number)) == number for number in given[:: MANY // 7]), "a dashboard shows them as floats"


def test_an_id_has_four_bytes_as_long_as_they_are_enough() -> None:
    numbers = JobNumbers(3)
    given = [numbers.next() for _ in range(MANY)]
    assert len(JobID.from_int(given[65_534]).binary()) == 4
    assert len(JobID.from_int(given[65_535]).binary()) == 8
    for number in (given[0], given[65_534], given[65_535], given[-1]):
        assert JobID.from_int(number).int() == number
        assert JobID.from_hex(JobID.from_int(number).hex()) == JobID.from_int(number)
