"""Stream: a graph of operators over unbounded sources, built step by step and then started."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.data.streams import operators as ops
from weft.data.streams.graph import Edge, Graph, StageSpec, Times
from weft.data.streams.job import JobOptions, StreamJob
from weft.data.streams.sources import FileSource, IteratorSource, PacedSource, SocketSource, StreamSource
from weft.data.streams.windows import Fold, Session, Sliding, Tumbling
from weft.library.checks import above, at_least
from weft.library.keywords import answers_attributes

if TYPE_CHECKING:
    from weft.data.streams.training import TrainingJob

DEFAULT_PARALLELISM = 2


def stream(source: StreamSource, *, parallelism: int = 1) -> Stream:
    """Events of a source of one's own, read by so many subtasks."""
    at_least("parallelism", parallelism, 1)
    if not isinstance(source, StreamSource):
        raise TypeError(
            f"stream() wants a StreamSource, but got {reprlib.repr(source)}: write stream_from(lambda: events)"
        )
    return Stream(Graph([StageSpec(type(source).__name__, parallelism, [], source)]), 0)


def stream_from(make: Callable[..., Iterable[Any]], *, parallelism: int = 1) -> Stream:
    """What an iterable gives that `make()` returns, or `make(index, parallelism)` where there are several subtasks.
    After a failure it is made again, and what was taken before is skipped.

    >>> sorted(stream_from(lambda: ["a", "b", "a"]).map(str.upper).run())
    ['A', 'A', 'B']
    """
    _check_function("stream_from", make)
    chosen = make if parallelism > 1 else lambda index, parallelism: make()
    return stream(IteratorSource(chosen), parallelism=parallelism)


def stream_paced(make: Callable[[], Iterable[Any]], events_per_s: float) -> Stream:
    """(due time, event) of an iterable, at a given rate."""
    return stream(PacedSource(lambda index, parallelism: make(), events_per_s))


def stream_lines(path: str, *, follow: bool = True) -> Stream:
    """The lines of a file that grows, until `path.done` exists."""
    return stream(FileSource(path, follow))


def stream_socket(host: str, port: int) -> Stream:
    """Lines from a TCP server. A socket cannot be replayed: what was on its way when a subtask died is lost."""
    return stream(SocketSource(host, port))


def stream_kafka(
    topic: str,
    *,
    servers: str,
    parallelism: int = 1,
    start: str = "earliest",
    end_at_latest: bool = False,
    settings: dict[str, Any] | None = None,
) -> Stream:
    """The messages of a topic, as dicts of key, value, timestamp, partition and offset; `settings` are librdkafka's."""
    from weft.data.streams.kafka import KafkaSource

    chosen = {"bootstrap.servers": servers, **(settings or {})}
    return stream(KafkaSource(topic, chosen, start, end_at_latest), parallelism=parallelism)


_KEYED = "write key_by(function) before it"


@answers_attributes(
    collect="write run(), which gives all outputs, or iterate over start()",
    count=_KEYED,
    foreach="write for_each(function)",
    group_by="write key_by(function)",
    groupby="write key_by(function)",
    keyBy="write key_by(function)",
    print="write for_each(print), or iterate over start()",
    reduce=_KEYED,
    sink="write start(sink=function)",
    take="write run(), which gives all outputs, or iterate over start()",
    window=_KEYED,
)
class Stream:
    """Events, one after the other, without end.

    >>> events = stream_from(lambda: [(1.0, "a"), (4.0, "b"), (9.0, "a"), (12.0, "a")])  # (seconds, word)
    >>> words = events.timestamps(lambda event: event[0]).key_by(lambda event: event[1])
    >>> for result in sorted(words.window(Tumbling(10)).count().run()):
    ...     print(result.key, result.window.start, result.value)
    a 0.0 2
    a 10.0 1
    b 0.0 1
    """

    def __init__(self, graph: Graph, stage: int) -> None:
        self._graph = graph
        self._stage = stage

    def __repr__(self) -> str:
        return f"Stream({self._graph.stages[self._stage].name})"

    def _chained(self, operator: ops.Operator, name: str) -> Graph:
        """The graph with one operator more in the actor of the last stage."""
        made = self._graph.copy()
        last = made.stages[self._stage]
        made.stages[self._stage] = replace(last, name=f"{last.name} → {name}", operators=[*last.operators, operator])
        return made

    def timestamps(
        self, function: Callable[[Any], float], *, max_delay_s: float = 0.0, idle_after_s: float | None = None
    ) -> Stream:
        """Event time: `function(event)`, in seconds. Events may be `max_delay_s` out of order. A source that gives
        nothing for `idle_after_s` holds the others back no longer. Comes right behind the source; without it the time
        of an event is when it was read."""
        spec = self._graph.stages[self._stage]
        if spec.source is None or spec.operators:
            raise ValueError("timestamps() must come right behind the source")
        made = self._graph.copy()
        made.stages[self._stage] = replace(spec, times=Times(function, max_delay_s, idle_after_s))
        return Stream(made, self._stage)

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """One event for each event."""
        _check_function("map", function)
        return Stream(self._chained(ops.MapOperator(function), "map"), self._stage)

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Any number of events for each event."""
        _check_function("flat_map", function)
        return Stream(self._chained(ops.FlatMapOperator(function), "flat_map"), self._stage)

    def filter(self, function: Callable[[Any], Any]) -> Stream:
        """The events for which the function is true."""
        _check_function("filter", function)
        return Stream(self._chained(ops.FilterOperator(function), "filter"), self._stage)

    def for_each(self, function: Callable[[Any], Any]) -> Stream:
        """Call it with each event, at once, where the event is. After a failure some are seen again."""
        _check_function("for_each", function)
        return Stream(self._chained(ops.ForEachOperator(function), "for_each"), self._stage)

    def key_by(self, function: Callable[[Any], Any]) -> KeyedStream:
        """What comes next keeps its state, windows and order by key. A key must have the same `repr` everywhere."""
        _check_function("key_by", function)
        return KeyedStream(self._chained(ops.KeyOperator(function), "key_by"), self._stage)

    def union(self, other: Stream) -> Stream:
        """The events of both, as they come."""
        graph, right = _together(self._graph, other)
        graph.stages.append(StageSpec("union", 1))
        new = len(graph.stages) - 1
        graph.edges += [Edge(self._stage, new, "any"), Edge(right, new, "any")]
        return Stream(graph, new)

    def with_broadcast(
        self,
        other: Stream,
        function: Callable[[Any, Any], Any],
        *,
        update: Callable[[Any, Any], Any] | None = None,
        initial: Any = None,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> Stream:
        """`function(event, shared)` of each event; `shared` is what `update(shared, event)` made of all events of the
        other stream so far, by default the latest of them, and is the same everywhere."""
        graph, right = _together(self._graph, other)
        operator = ops.BroadcastOperator(function, update or (lambda shared, event: event), initial)
        graph.stages.append(StageSpec("with_broadcast", parallelism, [operator]))
        new = len(graph.stages) - 1
        graph.edges += [Edge(self._stage, new, "any"), Edge(right, new, "all", side=1)]
        return Stream(graph, new)

    def start(
        self,
        *,
        checkpoint_every_s: float = 1.0,
        checkpoint_dir: str | None = None,
        max_restarts: int = 10,
        sink: Callable[[int, list[Any]], None] | None = None,
    ) -> StreamJob:
        """Run it. State is exact whatever dies; outputs come once, when the checkpoint that they belong to is complete:
        from iterating over the job, or to `sink(checkpoint, outputs)`. With a `checkpoint_dir` a program that starts
        the same stream again goes on where it was, and calls the sink again for the last checkpoint."""
        above("checkpoint_every_s", checkpoint_every_s)
        made = self._graph.copy()
        made.stages[self._stage] = replace(made.stages[self._stage], gives_output=True)
        return StreamJob(made, JobOptions(checkpoint_every_s, checkpoint_dir, max_restarts, sink))

    def run(self, **options: Any) -> list[Any]:
        """Start it and wait for its end: all outputs."""
        with self.start(**options) as job:
            return list(job)

    def train(self, learner: Any, **options: Any) -> TrainingJob:
        """Update a model with each batch of events, and publish versions of it: see `TrainingJob`."""
        from weft.data.streams.training import train

        return train(self, learner, **options)


@answers_attributes(
    "count(), reduce(), process(), window() or join() come after key_by(); their result is a Stream, which has run()"
)
class KeyedStream:
    """Events with keys; each operation runs in a stage of its own, to which all events of a key go."""

    def __init__(self, graph: Graph, stage: int) -> None:
        self._graph = graph
        self._stage = stage

    def _keyed(self, operator: ops.Operator, name: str, parallelism: int) -> Stream:
        at_least("parallelism", parallelism, 1)
        graph = self._graph.copy()
        graph.stages.append(StageSpec(name, parallelism, [operator]))
        new = len(graph.stages) - 1
        graph.edges.append(Edge(self._stage, new, "key"))
        return Stream(graph, new)

    def reduce(self, function: Callable[[Any, Any], Any], *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        """(key, result so far) for each event."""
        return self._keyed(ops.ReduceOperator(function), "reduce", parallelism)

    def count(self, *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        """(key, number so far) for each event.

        >>> words = stream_from(lambda: ["a", "b", "a"])
        >>> dict(words.key_by(lambda word: word).count().run())
        {'a': 2, 'b': 1}
        """
        return self.process(_counted, parallelism=parallelism)

    def process(
        self,
        function: Callable[[Any, Any, dict[str, Any]], Iterable[Any] | None],
        *,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> Stream:
        """`function(key, event, state)` gives any number of values; `state` is a dict of the key's own that is kept."""
        return self._keyed(ops.ProcessOperator(function), "process", parallelism)

    def window(self, assigner: Tumbling | Sliding | Session, *, allowed_lateness_s: float = 0.0) -> WindowedStream:
        return WindowedStream(self, assigner, allowed_lateness_s)

    def join(
        self,
        other: KeyedStream,
        window: Tumbling | Sliding | Session,
        *,
        allowed_lateness_s: float = 0.0,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> Stream:
        """Pairs of events of both streams with the same key in the same window: WindowResult(key, window, (a, b))."""
        graph, right = _together(self._graph, other)
        graph.stages.append(
            StageSpec("join", parallelism, [ops.WindowJoinOperator(window, lateness_s=allowed_lateness_s)])
        )
        new = len(graph.stages) - 1
        graph.edges += [Edge(self._stage, new, "key"), Edge(right, new, "key", side=1)]
        return Stream(graph, new)


class WindowedStream:
    """Windows of keys; what they come to is put out as WindowResult(key, window, value) when they are complete."""

    def __init__(self, keyed: KeyedStream, assigner: Tumbling | Sliding | Session, lateness_s: float) -> None:
        self._keyed = keyed
        self._assigner = assigner
        self._lateness_s = lateness_s

    def aggregate(
        self,
        zero: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> Stream:
        """`add(accumulator, event)`, beginning with `zero()`; sessions also need `merge` of two accumulators."""
        operator = ops.WindowOperator(self._assigner, Fold(zero, add, merge), self._lateness_s)
        return self._keyed._keyed(operator, "window", parallelism)

    def count(self, *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        return self.aggregate(int, _one_more, merge=_sum, parallelism=parallelism)

    def sum(self, *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        return self.aggregate(int, _sum, merge=_sum, parallelism=parallelism)

    def collect(self, *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        """All events of the window, as a list."""
        return self.aggregate(list, _appended, merge=_sum, parallelism=parallelism)

    def reduce(self, function: Callable[[Any, Any], Any], *, parallelism: int = DEFAULT_PARALLELISM) -> Stream:
        """`function` of two events, or of what came of others and an event."""

        def add(known: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
            return (function(known[0], value),) if known else (value,)

        def merge(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
            return (function(left[0], right[0]),) if left and right else left or right

        made = self.aggregate(tuple, add, merge=merge, parallelism=parallelism)
        return made.map(lambda result: result._replace(value=result.value[0]))


def _check_function(call: str, function: object) -> None:
    if not callable(function):
        shown = "lambda: events" if call == "stream_from" else "lambda event: ..."
        raise TypeError(f"{call}() wants a function, such as {shown}, but got {function!r}")


def _counted(key: Any, event: Any, state: dict[str, Any]) -> list[tuple[Any, int]]:
    state["count"] = state.get("count", 0) + 1
    return [(key, state["count"])]


def _one_more(count: int, event: Any) -> int:
    return count + 1


def _sum(left: Any, right: Any) -> Any:
    return left + right


def _appended(events: list[Any], event: Any) -> list[Any]:
    events.append(event)
    return events


def _together(left: Graph, other: Stream | KeyedStream) -> tuple[Graph, int]:
    """Both graphs as one, and where the last stage of the other is in it."""
    shift = len(left.stages)
    stages = [*left.stages, *other._graph.stages]
    moved = [Edge(edge.upstream + shift, edge.downstream + shift, edge.how, edge.side) for edge in other._graph.edges]
    return Graph(stages, [*left.edges, *moved]), other._stage + shift
