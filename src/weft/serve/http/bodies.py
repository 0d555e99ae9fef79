"""Bodies of requests to arguments, results to bodies. Runs in the replica.

A body becomes the first argument: JSON a Python value, `application/x-npy` an array, an Arrow stream a table, `text/*`
a string, anything else bytes. Query parameters become keyword arguments, as strings.
"""

from __future__ import annotations

import io
import struct
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import numpy as np

from weft.serve.http.arrow_streams import expanded_bytes
from weft.serve.http.messages import Headers, HttpAnswer, HttpHead, header_of

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
LATE = "the deployment did not answer in time"
_EXPANDED_BYTES, _EXPANSION = 64 << 20, 8
"""A compressed table may have so many bytes, or so many times the body's if that is more."""
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class BadRequest(Exception):
    """The client's fault, with the status to answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


def arguments(query: bytes, headers: Headers, body: bytes) -> tuple[tuple[Any, ...], dict[str, str]]:
    """What the deployment is called with; BadRequest."""
    kwargs: dict[str, str] = {}
    if query:
        try:
            kwargs = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=1000))
        except ValueError:
            raise BadRequest(400, "the query is malformed") from None
    return ((decoded(body, header_of(headers, b"content-type")),) if body else ()), kwargs


def decoded(body: bytes, content_type: str) -> Any:
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json" or kind.endswith("+json"):
            return msgspec.json.decode(body)
        if kind == NPY:
            return _array(body)
        if kind == ARROW:
            return _table(body)
        if kind.startswith("text/"):
            return body.decode()
    except (ValueError, EOFError, RecursionError, MemoryError) as error:
        raise BadRequest(400, f"the body is not {kind}: {str(error)[:200]}") from None
    if kind in _FORMS:
        raise BadRequest(415, "forms are read by deployments with @serve.ingress only")
    return body


def encoded(value: Any, accept: str) -> HttpAnswer:
    """The answer to a request. A Starlette response is taken as it is."""
    if type(value) is str:
        return HttpAnswer(200, _TEXT, value.encode())
    if hasattr(value, "status_code") and hasattr(value, "raw_headers") and hasattr(value, "body"):
        return HttpAnswer(value.status_code, tuple(value.raw_headers), bytes(value.body))
    kind, body = payload(value, accept)
    return HttpAnswer(200, content_type(kind), body)


def payload(value: Any, accept: str = "") -> tuple[bytes, bytes]:
    """(content type, body)"""
    if isinstance(value, bytes | bytearray | memoryview):
        return b"application/octet-stream", bytes(value)
    if isinstance(value, str):
        return _TEXT[0][1], value.encode()
    if isinstance(value, np.ndarray) and NPY in accept:
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return NPY.encode(), buffer.getvalue()
    if type(value).__module__.startswith("pyarrow."):
        return _arrow_payload(value)
    return b"application/json", msgspec.json.encode(value, enc_hook=_plain)


def piece(item: Any) -> bytes:
    """One item of a stream: text and bytes as they are, others as a line of JSON."""
    kind, body = payload(item)
    return body + b"\n" if kind == b"application/json" else body


def stream_head(item: Any) -> HttpHead:
    kind, _ = payload(item)
    return HttpHead(200, content_type(b"application/x-ndjson" if kind == b"application/json" else kind))


def refusal(status: int, reason: str, headers: Headers = ()) -> HttpAnswer:
    body = msgspec.json.encode({"error": reason})
    return HttpAnswer(status, (*content_type(b"application/json"), *headers), body)


def content_type(kind: bytes) -> Headers:
    return ((b"content-type", kind),)


def _array(body: bytes) -> Any:
    """Of one array alone: `np.load` would also open an archive of many, which a small body may hold much in."""
    try:
        return np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, and raises what its tokenizer raises
        raise ValueError(str(error) or type(error).__name__) from None


def _table(body: bytes) -> Any:
    """The stream's table, over the body's own bytes."""
    try:
        import pyarrow as pa
    except ImportError:
        raise BadRequest(415, "Arrow cannot be read here: pyarrow is not installed") from None
    try:
        expanded, most = expanded_bytes(pa.ipc.MessageReader.open_stream(pa.py_buffer(body))), _most_expanded(body)
        if expanded > most:
            raise BadRequest(413, f"the table is compressed and would have {expanded} bytes; {most} are the most")
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)  # else offsets in it could lead anywhere in this process's memory
        return table
    except (pa.ArrowException, OSError, struct.error) as error:
        raise ValueError(str(error)) from None


def _most_expanded(body: bytes) -> int:
    return max(_EXPANDED_BYTES, _EXPANSION * len(body))


def _arrow_payload(value: Any) -> tuple[bytes, bytes]:
    import pyarrow as pa

    table = pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value
    if not isinstance(table, pa.Table):
        return b"application/json", msgspec.json.encode(
            value.to_pylist() if hasattr(value, "to_pylist") else value.as_py()
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return ARROW.encode(), sink.getvalue().to_pybytes()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: return plain values, arrays, bytes or text")
