"""The pure parts: what the optimiser does to a plan, windows, aggregates, sampling, batches."""

from __future__ import annotations

import pickle
from collections import deque

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.data import plan
from weft.data.aggregates import Aggregate, combined_frame, partial_frame, whole_frame
from weft.data.block import coalesced, gathered, piece_of
from weft.data.exchange import HashDivide, RangeDivide, boundaries, sorted_sample
from weft.data.expressions import col
from weft.data.functions import Function
from weft.data.iteration import rebatched, shuffled
from weft.data.optimize import optimize
from weft.data.running import Running
from weft.data.sizing import BlockSizes, Sizing
from weft.data.sources.base import Source
from weft.data.splitting import Handout
from weft.data.window import Window


class Columns(Source):
    """A source of which only the columns matter."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def columns(self) -> list[str]:
        return self.names

    def types(self) -> pl.Schema:
        return pl.Schema(dict.fromkeys(self.names, pl.Int64))


def read(*names: str) -> plan.Read:
    return plan.Read((), Columns(*names))


def reads(node: plan.Node) -> list[list[str] | None]:
    own = [node.columns] if isinstance(node, plan.Read) else []
    return own + [found for child in node.inputs for found in reads(child)]


def shape(node: plan.Node) -> list[str]:
    return [type(node).__name__] + [name for child in node.inputs for name in shape(child)]


def test_a_reader_reads_only_what_is_wanted() -> None:
    node = plan.Project(
        (plan.Filter((read("a", "b", "c", "d"),), col("b") > 1),), (col("a"), (col("c") + 1).alias("e"))
    )
    assert reads(optimize(node)) == [["a", "b", "c"]]


def test_columns_that_nobody_wants_are_not_made() -> None:
    made = plan.Project((read("a", "b", "c"),), ((col("b") * 2).alias("x"), (col("c") * 2).alias("y")), keep=True)
    best = optimize(plan.Project((made,), (col("a"), col("x"))))
    assert reads(best) == [["a", "b"]]
    assert 'col("c")' not in plan.describe(best)


def test_a_count_reads_one_column() -> None:
    assert reads(optimize(plan.Count((read("a", "b"),)))) == [["a"]]


def test_a_users_function_gets_all_columns() -> None:
    node = plan.Project((plan.Map((read("a", "b"),), Function("map", dict)),), (col("a"),))
    assert reads(optimize(node)) == [["a", "b"]]


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        (lambda node: plan.Sort((node,), ("a",), (False,)), ["Sort", "Filter", "Read"]),
        (lambda node: plan.Shuffle((node,), 1), ["Shuffle", "Filter", "Read"]),
        (lambda node: plan.Project((node,), (col("a"), col("b"))), ["Project", "Filter", "Read"]),
        (lambda node: plan.Project((node,), ((col("b") + 1).alias("a"),)), ["Filter", "Project", "Read"]),
        (lambda node: plan.Project((node,), ((col("b") + 1).alias("c"),), keep=True), ["Project", "Filter", "Read"]),
        (lambda node: plan.Limit((node,), 3), ["Filter", "Limit", "Read"]),
        (lambda node: plan.GroupBy((node,), ("a",), ()), ["GroupBy", "Filter", "Read"]),
        (lambda node: plan.GroupBy((node,), ("b",), (Aggregate("sum", "a", "a"),)), ["Filter", "GroupBy", "Read"]),
        (lambda node: plan.Rename((node,), (("x", "a"),)), ["Filter", "Rename", "Read"]),
        (lambda node: plan.Union((node, node)), ["Union", "Filter", "Read", "Filter", "Read"]),
    ],
)
def test_a_filter_sinks_as_far_as_its_meaning_stays(above: object, expected: list[str]) -> None:
    made = above(read("a", "b"))  # type: ignore[operator]
    assert shape(optimize(plan.Filter((made,), col("a") > 1))) == expected


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("keys", [("a", "a"), ("a", "c"), ("b", "a"), ("b", "c")])
def test_a_join_knows_the_columns_that_it_gives(how: str, keys: tuple[str, str]) -> None:
    joined = plan.Join((read("a", "b", "d"), read("c", "a", "d")), keys[:1], keys[1:], how, "_right")
    assert joined.schema is not None
    assert joined.columns == joined.schema.names()


@pytest.mark.parametrize(("how", "columns"), [("left", None), ("full", None), ("semi", ["a", "b"])])
def test_a_join_with_what_a_function_makes_does_not_claim_to_know_its_columns(how: str, columns: object) -> None:
    unknown = plan.Map((read("c"),), Function("map", dict))
    assert plan.Join((read("a", "b"), unknown), ("a",), ("c",), how, "_right").columns == columns


def test_a_count_of_a_union_keeps_a_column_that_its_sides_have() -> None:
    joined = plan.Join((read("a", "b"), read("c", "d")), ("a",), ("c",), "right", "_right")
    counted = optimize(plan.Count((plan.Union((joined, plan.Filter((joined,), col("d") > 0))),)))
    assert counted.inputs[0].schema.names() == ["b"]  # type: ignore[union-attr]


def test_filters_go_to_the_side_of_a_join_that_has_their_columns() -> None:
    join = plan.Join((read("k", "a"), read("k", "b")), ("k",), ("k",), "inner", "_right")
    assert shape(optimize(plan.Filter((join,), col("a") > 1))) == ["Join", "Filter", "Read", "Read"]
    assert shape(optimize(plan.Filter((join,), col("b") > 1))) == ["Join", "Read", "Filter", "Read"]
    assert shape(optimize(plan.Filter((join,), col("a") > col("b")))) == ["Filter", "Join", "Read", "Read"]
    outer = plan.Join(join.inputs, ("k",), ("k",), "full", "_right")
    assert shape(optimize(plan.Filter((outer,), col("a") > 1))) == ["Filter", "Join", "Read", "Read"]


# ---- the window -------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 100), max_size=60),
    slots=st.integers(1, 6),
    budget=st.integers(0, 300),
    choices=st.randoms(use_true_random=False),
)
def test_a_window_ends_and_keeps_its_bounds(sizes: list[int], slots: int, budget: int, choices: object) -> None:
    window = Window(slots, budget)
    waiting, running, held, taken = deque(sizes), [], [], 0
    largest = max(sizes, default=0)
    while waiting or running or held:
        while waiting and window.may_submit():
            running.append(waiting.popleft())
            window.submitted()
        assert running or held, "nothing is under way although something waits"
        assert len(running) <= max(slots, 1)
        if running and (not held or choices.random() < 0.5):  # type: ignore[attr-defined]
            size = running.pop(choices.randrange(len(running)))  # type: ignore[attr-defined]
            window.finished(size)
            held.append(size)
        else:
            size = held.pop(0)
            window.taken(size)
            taken += 1
        assert window.held_bytes == sum(held) <= budget + slots * largest
    assert taken == len(sizes)


# ---- aggregates and exchanges -----------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.floats(-1e3, 1e3))), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, cuts=st.integers(1, 5))
def test_combined_parts_are_what_the_whole_gives(rows: list[tuple[int, float | None]], cuts: int) -> None:
    frame = pl.DataFrame(rows, schema={"k": pl.Int64, "v": pl.Float64}, orient="row")
    kinds = ("sum", "min", "max", "count", "mean", "std", "var", "len")
    aggregates = [Aggregate(kind, None if kind == "len" else "v", kind) for kind in kinds]
    step = -(-frame.height // cuts)
    pieces = [frame.slice(at, step) for at in range(0, frame.height, step)]
    parts = pl.concat([partial_frame(piece.lazy(), ["k"], aggregates).collect() for piece in pieces])
    combined = combined_frame(parts.lazy(), ["k"], aggregates).collect().sort("k")
    expected = whole_frame(frame.lazy(), ["k"], aggregates).collect().sort("k")
    for name in ("sum", "min", "max", "count", "mean", "std", "var", "len"):
        for left, right in zip(combined[name], expected[name], strict=True):
            assert left == right if right is None or left is None else left == pytest.approx(right, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=1, max_size=60), parts=st.integers(1, 6))
def test_ranges_are_disjoint_ordered_and_complete(values: list[int | None], parts: int) -> None:
    frame = pl.DataFrame({"x": values}, schema={"x": pl.Int64})
    for descending in (False, True):
        divide = RangeDivide("x", descending, boundaries([frame["x"].to_arrow()], parts))
        pieces = divide.divide(frame, Running(0, {}))
        assert len(pieces) == divide.parts <= parts
        together = pl.concat([piece.sort("x", descending=descending) for piece in pieces])["x"]
        assert together.to_list() == frame.sort("x", descending=descending)["x"].to_list()


def test_equal_keys_meet_whatever_their_width() -> None:
    narrow = pl.DataFrame({"k": pl.Series(range(100), dtype=pl.Int16)})
    wide = pl.DataFrame({"k": pl.Series(range(100), dtype=pl.Int64)})
    divide = HashDivide(("k",), 5)
    for left, right in zip(divide.divide(narrow, Running(0, {})), divide.divide(wide, Running(1, {})), strict=True):
        assert left["k"].to_list() == right["k"].to_list()


# ---- batches and shares -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 20), max_size=8),
    size=st.integers(1, 15),
    drop_last=st.booleans(),
    buffer=st.one_of(st.none(), st.integers(1, 30)),
)
def test_batches_have_the_size_and_lose_no_row(
    lengths: list[int], size: int, drop_last: bool, buffer: int | None
) -> None:
    total = sum(lengths)
    values, blocks = iter(range(total)), []
    for length in lengths:
        blocks.append(pa.table({"x": pa.array([next(values) for _ in range(length)], pa.int64())}))
    source = blocks if buffer is None else list(shuffled(blocks, buffer, 1))
    made = list(rebatched(source, size, drop_last))
    assert all(batch.num_rows == size for batch in made[:-1])
    rows = [value for batch in made for value in batch.column("x").to_pylist()]
    assert len(rows) == (total - total % size if drop_last else total)
    assert len(set(rows)) == len(rows)
    if buffer is None:
        assert rows == list(range(len(rows)))


@given(rows=st.lists(st.integers(0, 50), max_size=20), parts=st.integers(1, 5))
def test_equal_shares_are_equal_and_overlap_nowhere(rows: list[int], parts: int) -> None:
    handout = Handout(parts, equal=True)
    for number, count in enumerate(rows):
        handout.arrived(number, count, 0)
    shares: list[set[tuple[int, int]]] = [set() for _ in range(parts)]
    for consumer in range(parts):
        while (piece := handout.waiting(consumer)) is not None:
            shares[consumer] |= {(piece[0], row) for row in range(piece[1], piece[2])}
    assert len({len(share) for share in shares}) == 1
    assert len(set().union(*shares)) == sum(map(len, shares)) == sum(rows) - sum(rows) % parts
    assert handout.rows_left_over == sum(rows) % parts


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=10), target=st.integers(8, 200))
def test_blocks_come_in_about_one_size_and_lose_no_row(lengths: list[int], target: int) -> None:
    total = sum(lengths)
    values, blocks = iter(range(total)), []
    for length in lengths:
        blocks.append(pa.table({"x": pa.array([next(values) for _ in range(length)], pa.int64())}))
    made = list(coalesced(blocks, BlockSizes(target, 2 * target)))
    assert [value for block in made if block.num_rows for value in block.column("x").to_pylist()] == list(range(total))
    assert len(made) >= 1
    assert all(block.nbytes <= 2 * target for block in made)
    assert len(made) <= 2 + 3 * 8 * total / target


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=20)), st.integers(0, 9)), max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_pieces_of_an_exchange_are_gathered_as_they_were(pieces: list[list[tuple[str | None, int]]]) -> None:
    kinds = {"text": pl.String, "number": pl.Int64}
    frames = [pl.DataFrame(rows, schema=kinds, orient="row").with_columns(both=pl.struct("text")) for rows in pieces]
    found = gathered([pickle.loads(pickle.dumps(piece_of(frame))) for frame in frames])
    assert found.rows() == pl.concat(frames).rows()


# ---- sizes ------------------------------------------------------------------------------------------


@given(total=st.integers(0, 2**44), arena=st.integers(2**20, 2**40), cpus=st.integers(1, 128))
def test_an_exchange_has_as_many_parts_as_fit_and_not_more_pieces_than_the_arena_has_entries(
    total: int, arena: int, cpus: int
) -> None:
    sizing = Sizing(cpus, arena)
    parts = sizing.parts(total)
    blocks = -(-total // sizing.block_bytes)
    assert parts >= cpus
    assert parts == cpus or parts * blocks <= sizing.most_pieces
    assert total / parts <= sizing.largest_part_bytes or (parts + cpus) * blocks > sizing.most_pieces
    assert sizing.block_bytes <= sizing.largest_part_bytes


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-50, 50), min_size=1, max_size=80), descending=st.booleans())
def test_a_part_that_is_divided_once_more_stays_between_its_neighbours(values: list[int], descending: bool) -> None:
    frame = pl.DataFrame({"x": values})
    sample = sorted_sample([frame["x"].to_arrow()])
    divide = RangeDivide("x", descending, boundaries([sample], 3), sample)
    made = []
    for number, piece in enumerate(divide.divide(frame, Running(0, {}))):
        finer = divide.finer(number, 4)
        made += [piece] if finer is None else finer.divide(piece, Running(0, {}))
    together = pl.concat([piece.sort("x", descending=descending) for piece in made])["x"]
    assert together.to_list() == frame.sort("x", descending=descending)["x"].to_list()


def test_a_finer_division_by_hash_keeps_equal_keys_together_and_divides_the_others() -> None:
    frame = pl.DataFrame({"k": list(range(4000)) * 2})
    divide = HashDivide(("k",), 4)
    for number, piece in enumerate(divide.divide(frame, Running(0, {}))):
        finer = divide.finer(number, 4).divide(piece, Running(0, {}))
        assert sorted(key for part in finer for key in set(part["k"])) == sorted(set(piece["k"]))
        assert max(part.height for part in finer) < 0.4 * piece.height
