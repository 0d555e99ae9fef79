"""The logical plan: what was asked for, one frozen node an operation. It knows nothing of tasks.

Each node says which columns it needs below it (`wanted_below`) and which it is known to have (`columns`), which is
what `optimize` works with. A set of wanted columns may name more than there are; None means all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.data.aggregates import Aggregate
from weft.data.expressions import Expr, is_plain, output, roots

if TYPE_CHECKING:
    from weft.data.functions import Function
    from weft.data.sources.base import Source
    from weft.data.writers import Writer

Wanted = frozenset[str] | None


@dataclass(frozen=True, eq=False)
class Node:
    inputs: tuple[Node, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        """Of input `which`, so that `wanted` can be made. All, unless a kind of node knows better."""
        return None

    @property
    def columns(self) -> list[str] | None:
        """The names of its columns, where they are known before anything runs."""
        return None

    @property
    def label(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, eq=False)
class Read(Node):
    source: Source
    wanted: Wanted = None

    @property
    def columns(self) -> list[str] | None:
        names = self.source.columns()
        if names is None or self.wanted is None:
            return names
        return [name for name in names if name in self.wanted] or names[:1]

    @property
    def label(self) -> str:
        shown = "" if self.wanted is None else f", columns {self.columns or sorted(self.wanted)}"
        return f"Read {self.source}{shown}"


class _SameRows(Node):
    """Operations that change the order or the number of rows and no column."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return wanted

    @property
    def columns(self) -> list[str] | None:
        return self.inputs[0].columns


@dataclass(frozen=True, eq=False)
class Filter(_SameRows):
    predicate: Expr

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return None if wanted is None else wanted | roots(self.predicate)

    @property
    def label(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True, eq=False)
class Limit(_SameRows):
    rows: int

    @property
    def label(self) -> str:
        return f"Limit {self.rows}"


@dataclass(frozen=True, eq=False)
class Sort(_SameRows):
    keys: tuple[str, ...]
    descending: tuple[bool, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return None if wanted is None else wanted | frozenset(self.keys)

    @property
    def label(self) -> str:
        shown = [f"{key} desc" if down else key for key, down in zip(self.keys, self.descending, strict=True)]
        return f"Sort by {', '.join(shown)}"


@dataclass(frozen=True, eq=False)
class Shuffle(_SameRows):
    seed: int | None


@dataclass(frozen=True, eq=False)
class Repartition(_SameRows):
    blocks: int

    @property
    def label(self) -> str:
        return f"Repartition into {self.blocks}"


@dataclass(frozen=True, eq=False)
class Project(Node):
    """Exactly these columns, or, with `keep`, these besides the ones there are."""

    expressions: tuple[Expr, ...]
    keep: bool = False

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        used: frozenset[str] = frozenset().union(*map(roots, self.expressions))
        if not self.keep:
            return used
        made = frozenset(map(output, self.expressions))
        return None if wanted is None else (wanted - made) | used

    def without_unwanted(self, wanted: Wanted) -> tuple[Expr, ...]:
        if wanted is None:
            return self.expressions
        left = tuple(expr for expr in self.expressions if output(expr) in wanted)
        return left or (() if self.keep else self.expressions[:1])  # no column at all would lose the number of rows

    def passes(self, names: frozenset[str]) -> bool:
        """Whether all these columns are the same above and below."""
        if self.keep:
            return not names & frozenset(map(output, self.expressions))
        return names <= frozenset(output(expr) for expr in self.expressions if is_plain(expr))

    @property
    def columns(self) -> list[str] | None:
        made = [output(expr) for expr in self.expressions]
        if not self.keep:
            return made
        below = self.inputs[0].columns
        return None if below is None else [*below, *(name for name in made if name not in below)]

    @property
    def label(self) -> str:
        word = "With columns" if self.keep else "Select"
        return f"{word} {', '.join(map(str, self.expressions))}"


@dataclass(frozen=True, eq=False)
class Drop(Node):
    names: tuple[str, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return wanted

    @property
    def columns(self) -> list[str] | None:
        below = self.inputs[0].columns
        return None if below is None else [name for name in below if name not in self.names]

    @property
    def label(self) -> str:
        return f"Drop {', '.join(self.names)}"


@dataclass(frozen=True, eq=False)
class Rename(Node):
    mapping: tuple[tuple[str, str], ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted is None:
            return None
        back = {new: old for old, new in self.mapping}
        return frozenset(back.get(name, name) for name in wanted) | frozenset(old for old, _ in self.mapping)

    @property
    def columns(self) -> list[str] | None:
        below = self.inputs[0].columns
        mapping = dict(self.mapping)
        return None if below is None else [mapping.get(name, name) for name in below]

    @property
    def label(self) -> str:
        return "Rename " + ", ".join(f"{old} to {new}" for old, new in self.mapping)


@dataclass(frozen=True, eq=False)
class Map(Node):
    """A user's function over rows or batches."""

    function: Function

    @property
    def label(self) -> str:
        return str(self.function)


@dataclass(frozen=True, eq=False)
class GroupBy(Node):
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return frozenset(self.keys) | frozenset(agg.column for agg in self.aggregates if agg.column is not None)

    @property
    def columns(self) -> list[str] | None:
        return [*self.keys, *(agg.name for agg in self.aggregates)]

    @property
    def label(self) -> str:
        return f"Group by {', '.join(self.keys) or 'nothing'}: {', '.join(map(str, self.aggregates)) or 'unique'}"


@dataclass(frozen=True, eq=False)
class MapGroups(Node):
    keys: tuple[str, ...]
    function: Function

    @property
    def label(self) -> str:
        return f"Map groups by {', '.join(self.keys)}: {self.function}"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Inputs are left and right. Columns that both have get `suffix` on the right."""

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    suffix: str

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted is None:
            return None
        bare = frozenset(name.removesuffix(self.suffix) for name in wanted)
        return wanted | bare | frozenset(self.right_on if which else self.left_on)

    @property
    def columns(self) -> list[str] | None:
        left, right = (node.columns for node in self.inputs)
        if left is None or right is None or self.how in ("semi", "anti"):
            return left
        others = [name for name in right if name not in self.right_on]
        return [*left, *(name + self.suffix if name in left else name for name in others)]

    @property
    def label(self) -> str:
        pairs = zip(self.left_on, self.right_on, strict=True)
        keys = ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)
        return f"Join {self.how} on {keys}"


@dataclass(frozen=True, eq=False)
class Union(_SameRows):
    pass


@dataclass(frozen=True, eq=False)
class Zip(Node):
    pass


@dataclass(frozen=True, eq=False)
class Write(Node):
    writer: Writer

    @property
    def label(self) -> str:
        return f"Write {self.writer}"


@dataclass(frozen=True, eq=False)
class Count(Node):
    """Of the rows below nothing is wanted but how many there are."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return frozenset()


@dataclass
class Lines:
    """A plan as text, one node a line, inputs below and indented."""

    text: list[str] = field(default_factory=list)

    def add(self, node: Node, depth: int = 0) -> Lines:
        self.text.append("  " * depth + node.label)
        for child in node.inputs:
            self.add(child, depth + 1)
        return self


def rebuilt(node: Node, make: Callable[[Node], Node]) -> Node:
    """The node with `make` of each of its inputs."""
    from dataclasses import replace

    made = tuple(make(child) for child in node.inputs)
    return node if all(new is old for new, old in zip(made, node.inputs, strict=True)) else replace(node, inputs=made)


def describe(node: Node) -> str:
    return "\n".join(Lines().add(node).text)
