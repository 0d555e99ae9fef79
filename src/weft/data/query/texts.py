"""Functions of texts, by their names in SQL. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data.query.relation import refused
from weft.data.query.values import Place, Value, value

TEXTS = (pl.String, pl.Categorical, pl.Enum, pl.Null)


def texts(place: Place, node: Any, *given: Any) -> list[pl.Expr]:
    found = [value(place, each) for each in given]
    for each in found:
        if each.kind not in TEXTS:
            raise refused(f"{node.sql('duckdb')} of {each.kind}", "cast it to VARCHAR")
    return [each.expr.cast(pl.String) if each.kind != pl.String else each.expr for each in found]


def as_text(given: Value, node: exp.Expr) -> pl.Expr:
    if given.kind == pl.String:
        return given.expr
    if given.kind.is_float() or given.kind.is_nested() or given.kind in (pl.Datetime, pl.Duration, pl.Binary):
        raise refused(
            f"{given.kind} as text in {node.sql('duckdb')}", "format it in Python, or cast it to an exact type before"
        )
    return given.expr.cast(pl.String)


def _constant(place: Place, node: exp.Expr, given: Any, kind: type, what: str) -> Any:
    found = None if given is None else value(place, given).constant
    if not isinstance(found, kind):
        raise refused(node.sql("duckdb"), what)
    return found


def _of_text(make: Callable[[pl.Expr], pl.Expr], kind: pl.DataType | None = None) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        (text,) = texts(place, node, node.this)
        expr = make(text)
        return Value(expr if kind is None else expr.cast(kind), kind or pl.String())

    return made


def _of_two(make: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    return lambda place, node: Value(make(*texts(place, node, node.this, node.expression)), pl.Boolean())


def _some(make: Callable[[pl.Expr, int], pl.Expr], which: str = "expression") -> Callable[[Place, Any], Value]:
    """Of a text and a constant number of letters or times."""

    def made(place: Place, node: Any) -> Value:
        (text,) = texts(place, node, node.this)
        number = _constant(place, node, node.args.get(which), int, "the number must be a constant")
        return Value(make(text, number), pl.String())

    return made


# ---- patterns ----------------------------------------------------------------------------------------


def _like(place: Place, node: Any, flags: str = "s") -> Value:
    (text,) = texts(place, node, node.this)
    pattern, escape = node.expression, node.args.get("escape")
    found = value(place, pattern).constant
    if not isinstance(found, str):
        raise refused(f"{node.sql('duckdb')}, whose pattern is no constant", "write the pattern as a text")
    matches = text.str.contains(_regex(node, found, escape.name if escape else None, flags))
    return Value(~matches if node.args.get("negate") else matches, pl.Boolean())


def _regex(node: exp.Expr, pattern: str, escape: str | None, flags: str) -> str:
    made, letters = [], iter(pattern)
    for letter in letters:
        if letter == escape:
            kept = next(letters, None)
            if kept is None:
                raise refused(f"{node.sql('duckdb')}, which ends in what escapes", "write what it escapes behind it")
            made.append(re.escape(kept))
        else:
            made.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return f"(?{flags})^{''.join(made)}$"


def _escaped(place: Place, node: Any) -> Value:
    """`x LIKE pattern ESCAPE letter`, which the parser puts around the LIKE."""
    inside = node.this.copy()
    inside.set("escape", node.expression.copy())
    return value(place, inside)


def _position(place: Place, node: Any) -> Value:
    """From 1 on, in letters; 0 where it is not there."""
    (text,) = texts(place, node, node.this)
    part = _constant(place, node, node.args["substr"], str, "write what is looked for as a text")
    if not part:
        raise refused(node.sql("duckdb"), "look for a text that is not empty")
    before = text.str.splitn(part, 2).struct.field("field_0").str.len_chars().cast(pl.Int64)
    found = pl.when(text.str.contains(part, literal=True)).then(before + 1).otherwise(0)
    return Value(pl.when(text.is_not_null()).then(found), pl.Int64())


# ---- parts -------------------------------------------------------------------------------------------


def _substring(place: Place, node: Any) -> Value:
    (text,) = texts(place, node, node.this)
    start = value(place, node.args["start"]).constant
    length_node = node.args.get("length")
    length = None if length_node is None else value(place, length_node).constant
    if not isinstance(start, int) or start < 1 or not (length is None or (isinstance(length, int) and length >= 0)):
        raise refused(
            node.sql("duckdb"), "start must be a constant from 1 on, and the length a constant; right() counts back"
        )
    return Value(text.str.slice(start - 1, length), pl.String())


def _split(place: Place, node: Any) -> Value:
    (text,) = texts(place, node, node.this)
    by = _constant(place, node, node.args["delimiter"], str, "write what divides the parts as a text")
    number = _constant(place, node, node.args["part_index"], int, "write which part as a constant from 1 on, or -1")
    if not by or not number:
        raise refused(node.sql("duckdb"), "give a text that is not empty, and a number that is not 0")
    part = text.str.split(by).list.get(number - 1 if number > 0 else number, null_on_oob=True)
    return Value(pl.when(text.is_not_null()).then(part.fill_null("")), pl.String())


def _trim(place: Place, node: Any) -> Value:
    given = node.args.get("expression")
    letters = " " if given is None else value(place, given).constant
    if not isinstance(letters, str):
        raise refused(node.sql("duckdb"), "write the letters as a text")
    (text,) = texts(place, node, node.this)
    where = str(node.args.get("position") or "").upper()
    strip = {"LEADING": text.str.strip_chars_start, "TRAILING": text.str.strip_chars_end}.get(where)
    return Value((strip or text.str.strip_chars)(letters), pl.String())


# ---- other texts -------------------------------------------------------------------------------------


def _replaced(place: Place, node: Any) -> Value:
    text, new = texts(place, node, node.this, node.args["replacement"])
    old = _constant(place, node, node.expression, str, "write what is replaced as a text")
    made = text.str.replace_all(old, new.fill_null(""), literal=True) if old else text
    return Value(pl.when(new.is_not_null()).then(made), pl.String())


def _concat(place: Place, node: Any) -> Value:
    """`concat` leaves nulls out, `||` does not."""
    given = node.expressions if isinstance(node, exp.Concat) else list(node.flatten())
    found = [as_text(value(place, each), node) for each in given]
    whole = isinstance(node, exp.DPipe)
    return Value(pl.concat_str(found, ignore_nulls=not whole), pl.String())


def _concat_with(place: Place, node: Any) -> Value:
    between, *given = node.expressions
    by = _constant(place, node, between, str, "write what stands between as a text")
    found = [as_text(value(place, each), node) for each in given]
    return Value(pl.concat_str(found, separator=by, ignore_nulls=True), pl.String())


def _padded(place: Place, node: Any) -> Value:
    (text,) = texts(place, node, node.this)
    width = _constant(place, node, node.expression, int, "the length must be a constant")
    fill = _constant(place, node, node.args.get("fill_pattern"), str, "write what fills it as a text")
    if not fill or width < 0:
        raise refused(node.sql("duckdb"), "fill it with a text that is not empty, to a length from 0 on")
    missing = (pl.lit(width) - text.str.len_chars().cast(pl.Int64)).clip(0)
    filling = pl.lit((fill * width)[:width]).str.slice(0, missing)
    short = text.str.slice(0, width)
    return Value(pl.concat_str([filling, short] if node.args.get("is_left") else [short, filling]), pl.String())


CALLS: dict[type, Callable[[Place, Any], Value]] = {
    exp.Like: _like,
    exp.ILike: lambda place, node: _like(place, node, "si"),
    exp.Escape: _escaped,
    exp.StrPosition: _position,
    exp.Substring: _substring,
    exp.SplitPart: _split,
    exp.Left: _some(lambda text, number: text.str.head(number)),
    exp.Right: _some(lambda text, number: text.str.tail(number)),
    exp.Repeat: _some(lambda text, times: pl.concat_str([text] * times) if times > 0 else text.str.head(0), "times"),
    exp.Pad: _padded,
    exp.Upper: _of_text(lambda text: text.str.to_uppercase()),
    exp.Lower: _of_text(lambda text: text.str.to_lowercase()),
    exp.Length: _of_text(lambda text: text.str.len_chars(), pl.Int64()),
    exp.Trim: _trim,
    exp.Replace: _replaced,
    exp.StartsWith: _of_two(lambda text, part: text.str.starts_with(part)),
    exp.EndsWith: _of_two(lambda text, part: text.str.ends_with(part)),
    exp.Contains: _of_two(lambda text, part: text.str.contains(part, literal=True)),
    exp.Concat: _concat,
    exp.ConcatWs: _concat_with,
    exp.DPipe: _concat,
}
