"""Words of other libraries for what a Dataset does, and what it says to a word that it does not know. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from weft._lazy import nearest

_ELSEWHERE = {
    "add_column": 'with_column("name", data.col("x") * 2)',
    "agg": "aggregate(...)",
    "apply": "map(function), or map_batches(function)",
    "assign": 'with_column("name", data.col("x") * 2)',
    "cache": "materialize()",
    "collect": "take_all(), to_arrow() or to_pandas()",
    "compute": "take_all(), to_arrow() or to_pandas(); materialize() keeps the blocks",
    "drop_columns": 'drop("a", "b")',
    "group_by": "groupby(...)",
    "groupBy": "groupby(...)",
    "head": "take(rows)",
    "merge": 'join(other, on="key")',
    "order_by": "sort(...)",
    "orderBy": "sort(...)",
    "persist": "materialize()",
    "query": "filter(data.col('x') > 0)",
    "rename_columns": 'rename({"old": "new"})',
    "select_columns": 'select("a", "b")',
    "shape": "count() and columns()",
    "sort_values": "sort(...)",
    "to_list": "take_all()",
    "train_test_split": "split(parts), or filter() by a column",
    "where": "filter(data.col('x') > 0)",
    "withColumn": 'with_column("name", data.col("x") * 2)',
}
"""What other libraries call it, and what to write."""


def no_such_method(name: str, known: Iterable[str], columns: Collection[str]) -> AttributeError:
    if name.startswith("_"):
        return AttributeError(f"a Dataset has no attribute {name!r}")
    if name in columns:
        return AttributeError(f"columns are no attributes: .select({name!r}) is a Dataset of that column")
    if name in _ELSEWHERE:
        return AttributeError(f"a Dataset has no {name}: write .{_ELSEWHERE[name]}")
    meant = nearest(name, (word for word in known if word[0] != "_"))
    return AttributeError(f"a Dataset has no {name!r}{f': did you mean .{meant}()?' if meant else ''}")
