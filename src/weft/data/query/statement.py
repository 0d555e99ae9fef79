"""`weft.data.sql`: parses a statement and gives each column its table. Nothing runs here."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlglot import exp, parse
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify_columns import qualify_columns, validate_qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.schema import MappingSchema

from weft.data.dataset import Dataset
from weft.data.query.relation import Field, Relation, no_such_table, refused
from weft.data.query.selecting import query
from weft.data.schemas import no_such_column

_DIALECT = "duckdb"


def sql(statement: str, /, **tables: Dataset) -> Dataset:
    """A query over datasets, by the names that they are passed under; it is as lazy as they are.

    >>> from weft import data
    >>> trips = data.from_items([{"city": "Oslo", "fare": 3}, {"city": "Bern", "fare": 5}, {"city": "Oslo", "fare": 1}])
    >>> data.sql("select city, sum(fare) as total from trips group by city order by total desc", trips=trips).take()
    [{'city': 'Bern', 'total': 5}, {'city': 'Oslo', 'total': 4}]

    The dialect is DuckDB's, names are found in any case, and nulls come last in an order unless said. ValueError names
    what cannot be parsed or is not supported, a RowError a column that is not there.
    """
    for name, table in tables.items():
        if not isinstance(table, Dataset):
            raise TypeError(
                f"sql() takes Datasets by name, but {name} is {type(table).__name__}: data.from_… makes one"
            )
    tree = _parsed(statement)
    schemas = {name: _schema(name, table) for name, table in tables.items()}
    _spell(tree, schemas)
    tree = _qualified(tree, statement, schemas)
    env = {
        name: Relation(table, tuple(Field(name, column, column) for column in schemas[name]))
        for name, table in tables.items()
    }
    return _named(query(env, tree))


def _parsed(statement: str) -> Any:
    try:
        found = [tree for tree in parse(statement, read=_DIALECT) if tree is not None]
    except (ParseError, TokenError) as error:
        raise ValueError(f"sql() cannot read the statement: {str(error).splitlines()[0]}") from None
    if len(found) != 1:
        raise ValueError(f"sql() takes one statement, but got {len(found)}")
    if not isinstance(found[0], exp.Query):
        raise refused(f"{found[0].key.upper()} statements", "write a SELECT; write_parquet() and its like write rows")
    return found[0]


def _schema(name: str, table: Dataset) -> pl.Schema:
    schema = table._plan.schema
    if schema is None:
        raise ValueError(
            f"sql() must know the columns of {name}, but a function or a reader makes them as it runs: pass "
            f"{name}.materialize(), or select typed columns after the function"
        )
    return schema


def _spell(tree: Any, schemas: dict[str, pl.Schema]) -> None:
    """Identifiers without quotes are found in any case: each gets the spelling of the column, or its first one."""
    spelling = {name.lower(): name for schema in schemas.values() for name in schema}
    spelling |= {name.lower(): name for name in schemas}
    for identifier in tree.find_all(exp.Identifier):
        if not identifier.args.get("quoted"):
            identifier.set("this", spelling.setdefault(identifier.name.lower(), identifier.name))


def _qualified(tree: Any, statement: str, schemas: dict[str, pl.Schema]) -> Any:
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        if any(join.args.get("using") for join in joins) and not all(
            any(join.args.get(word) for word in ("side", "kind", "on", "using")) for join in joins
        ):
            raise refused("JOIN … USING beside a comma", "write ON, or CROSS JOIN for the comma")
    names: dict[str, object] = {name: dict.fromkeys(schema, "unknown") for name, schema in schemas.items()}
    known = {column for schema in schemas.values() for column in schema}
    known |= {found.alias for found in tree.find_all(exp.Alias)}
    try:
        tree = qualify_tables(tree, dialect=_DIALECT)
        tree = qualify_columns(tree, MappingSchema(names, dialect=_DIALECT, normalize=False), dialect=_DIALECT)
        validate_qualify_columns(tree)
    except OptimizeError as error:
        raise _explained(error, tree, schemas, known) from None
    return tree


def _explained(error: OptimizeError, tree: Any, schemas: dict[str, pl.Schema], known: set[str]) -> Exception:
    for table in tree.find_all(exp.Table):
        ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
        if table.name not in schemas and table.name not in ctes:
            return no_such_table(table.name, schemas)
    for column in tree.find_all(exp.Column):
        if column.name not in known and not isinstance(column.this, exp.Star):
            return no_such_column("sql", "the tables", column.name, sorted(known))
    return ValueError(f"sql() cannot tell which table a column is of: {str(error).splitlines()[0]}")


def _named(found: Relation) -> Dataset:
    """Under the names that the query gives."""
    names = [field.name for field in found.fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"sql(): two columns of the result are called {twice!r}; give one another name with AS")
    return found.dataset.select(*(pl.col(field.column).alias(field.name) for field in found.fields))
