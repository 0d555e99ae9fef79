"""weft.data: datasets and streams of Arrow blocks, through one engine.

>>> from weft import data
>>> ds = data.from_items([{"word": "a", "n": 1}, {"word": "b", "n": 2}, {"word": "a", "n": 3}])
>>> ds.groupby("word").agg(n="sum").sort("word").take()
[{'word': 'a', 'n_sum': 4}, {'word': 'b', 'n_sum': 2}]

Every name is loaded at its first use; pyarrow and Polars with the first of them (`pip install 'weft[data]'`).
"""

from __future__ import annotations

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__, needs=("polars", "pyarrow", "fsspec", "sqlglot"))

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
