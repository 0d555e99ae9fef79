"""weft.data: datasets and streams of Arrow blocks, through one engine.

>>> from weft import data
>>> ds = data.from_items([{"word": "a", "n": 1}, {"word": "b", "n": 2}, {"word": "a", "n": 3}])
>>> ds.groupby("word").agg(n="sum").sort("word").take()
[{'word': 'a', 'n_sum': 4}, {'word': 'b', 'n_sum': 2}]

Every name is loaded at its first use; pyarrow and Polars with the first of them (`pip install 'weft[data]'`).
"""

from __future__ import annotations

from weft._lazy import LazyNames

TYPE_CHECKING = False

if TYPE_CHECKING:
    from weft.data.aggregates import Aggregate as Aggregate
    from weft.data.dataset import Dataset as Dataset
    from weft.data.errors import DataError as DataError
    from weft.data.errors import ReadError as ReadError
    from weft.data.errors import RowError as RowError
    from weft.data.errors import SchemaError as SchemaError
    from weft.data.errors import WriteError as WriteError
    from weft.data.expressions import Expr as Expr
    from weft.data.expressions import col as col
    from weft.data.expressions import lit as lit
    from weft.data.expressions import when as when
    from weft.data.grouped import GroupedData as GroupedData
    from weft.data.progress import show_progress as show_progress
    from weft.data.readers import from_arrow as from_arrow
    from weft.data.readers import from_generator as from_generator
    from weft.data.readers import from_items as from_items
    from weft.data.readers import from_numpy as from_numpy
    from weft.data.readers import from_pandas as from_pandas
    from weft.data.readers import from_polars as from_polars
    from weft.data.readers import from_torch as from_torch
    from weft.data.readers import range as range
    from weft.data.readers import read_arrow as read_arrow
    from weft.data.readers import read_binary_files as read_binary_files
    from weft.data.readers import read_csv as read_csv
    from weft.data.readers import read_datasource as read_datasource
    from weft.data.readers import read_images as read_images
    from weft.data.readers import read_json as read_json
    from weft.data.readers import read_numpy as read_numpy
    from weft.data.readers import read_parquet as read_parquet
    from weft.data.readers import read_sql as read_sql
    from weft.data.readers import read_text as read_text
    from weft.data.sources.base import Source as Source
    from weft.data.sources.split import Split as Split
    from weft.data.splitting import DataIterator as DataIterator
    from weft.data.streams.job import StreamJob as StreamJob
    from weft.data.streams.operators import WindowResult as WindowResult
    from weft.data.streams.sources import StreamSource as StreamSource
    from weft.data.streams.stream import Stream as Stream
    from weft.data.streams.stream import stream as stream
    from weft.data.streams.stream import stream_from as stream_from
    from weft.data.streams.stream import stream_kafka as stream_kafka
    from weft.data.streams.stream import stream_lines as stream_lines
    from weft.data.streams.stream import stream_paced as stream_paced
    from weft.data.streams.stream import stream_socket as stream_socket
    from weft.data.streams.training import ModelVersion as ModelVersion
    from weft.data.streams.training import TrainingJob as TrainingJob
    from weft.data.streams.windows import Session as Session
    from weft.data.streams.windows import Sliding as Sliding
    from weft.data.streams.windows import Tumbling as Tumbling

_HOMES = {
    "aggregates": "Aggregate",
    "dataset": "Dataset",
    "errors": "DataError ReadError RowError SchemaError WriteError",
    "expressions": "Expr col lit when",
    "grouped": "GroupedData",
    "progress": "show_progress",
    "readers": (
        "from_arrow from_generator from_items from_numpy from_pandas from_polars from_torch range read_arrow "
        "read_binary_files read_csv read_datasource read_images read_json read_numpy read_parquet read_sql read_text"
    ),
    "sources.base": "Source",
    "sources.split": "Split",
    "splitting": "DataIterator",
    "streams.job": "StreamJob",
    "streams.operators": "WindowResult",
    "streams.sources": "StreamSource",
    "streams.stream": "Stream stream stream_from stream_kafka stream_lines stream_paced stream_socket",
    "streams.training": "ModelVersion TrainingJob",
    "streams.windows": "Session Sliding Tumbling",
}
_LAZY = LazyNames(__name__, _HOMES, needs=("polars", "pyarrow", "fsspec"))

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
