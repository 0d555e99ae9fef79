"""TFRecord there and back, as others write it, and what it cannot hold."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft import data
from weft.library.records import crc32c, crc32c_of_python, framed

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def test_examples_are_written_and_read_back(tmp_path: Path) -> None:
    rows = [
        {
            "id": number - 3 * 2**61 if number == 4 else -number,
            "flag": number % 2,
            "x": None if number % 5 == 0 else number / 4,
            "word": f"Zürich {number}".encode(),
            "ids": list(range(number % 4)),
        }
        for number in range(40)
    ]
    data.from_items(rows, parallelism=3).write_tfrecords(str(tmp_path))
    found = data.read_tfrecords(str(tmp_path), lists=["ids"])
    assert sorted(found.take_all(), key=lambda row: row["word"]) == sorted(
        ({name: row[name] for name in sorted(row)} for row in rows), key=lambda row: row["word"]
    )
    assert found.filter(data.col("id") < -30).sum("x") == sum(row["x"] or 0 for row in rows if row["id"] < -30)
    records = data.read_tfrecords(str(tmp_path), raw=True)
    records.write_tfrecords(str(tmp_path / "again"))
    again = data.read_tfrecords(str(tmp_path / "again"), lists=["ids"])
    assert again.sort("word").take_all() == found.sort("word").take_all()


def example_of(packed: bool) -> Any:
    """The message as protobuf's own library has it."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    factory = pytest.importorskip("google.protobuf.message_factory")
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package="t", syntax="proto3")

    def message(into: Any, name: str, *fields: tuple[str, int, int, str | None, bool]) -> Any:
        made = into.add(name=name)
        for name, number, kind, of, repeated in fields:
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            one = made.field.add(name=name, number=number, type=kind, label=label, type_name=of)
            if repeated and kind not in (field.TYPE_MESSAGE, field.TYPE_BYTES):
                one.options.packed = packed
        return made

    message(file.message_type, "BytesList", ("value", 1, field.TYPE_BYTES, None, True))
    message(file.message_type, "FloatList", ("value", 1, field.TYPE_FLOAT, None, True))
    message(file.message_type, "Int64List", ("value", 1, field.TYPE_INT64, None, True))
    lists = [("bytes_list", ".t.BytesList"), ("float_list", ".t.FloatList"), ("int64_list", ".t.Int64List")]
    kinds = [(name, number, field.TYPE_MESSAGE, of, False) for number, (name, of) in enumerate(lists, 1)]
    feature = message(file.message_type, "Feature", *kinds)
    feature.oneof_decl.add(name="kind")
    for one in feature.field:
        one.oneof_index = 0
    features = message(file.message_type, "Features", ("feature", 1, field.TYPE_MESSAGE, ".t.Features.Entry", True))
    features.field[0].type_name = ".t.Features.FeatureEntry"
    entry = message(
        features.nested_type,
        "FeatureEntry",
        ("key", 1, field.TYPE_STRING, None, False),
        ("value", 2, field.TYPE_MESSAGE, ".t.Feature", False),
    )
    entry.options.map_entry = True
    message(file.message_type, "Example", ("features", 1, field.TYPE_MESSAGE, ".t.Features", False))
    return factory.GetMessages([file])["t.Example"]


@pytest.mark.parametrize("packed", [True, False])
def test_examples_of_others_are_read_and_others_read_ours(packed: bool, tmp_path: Path) -> None:
    kind = example_of(packed)
    first, second = kind(), kind()
    first.features.feature["a"].int64_list.value.extend([1, -1, 2**63 - 1, -(2**63)])
    first.features.feature["b"].bytes_list.value.append(b"xyz" * 100)
    first.features.feature["c"].float_list.value.append(0.5)
    second.features.feature["a"].int64_list.value.append(300)
    second.features.feature["c"].float_list.value.append(-1.25)
    second.features.feature["d"].SetInParent()  # of no kind
    with gzip.open(tmp_path / "rows.tfrecord.gz", "wb") as file:
        file.writelines(framed(each.SerializeToString()) for each in (first, second))
    expected = [
        {"a": [1, -1, 2**63 - 1, -(2**63)], "b": b"xyz" * 100, "c": 0.5},
        {"a": [300], "b": None, "c": -1.25},
    ]
    found = data.read_tfrecords(str(tmp_path))
    assert found.take_all() == expected
    found.write_tfrecords(str(tmp_path / "ours"))
    del second.features.feature["d"]
    ours = [kind.FromString(row["record"]) for row in data.read_tfrecords(str(tmp_path / "ours"), raw=True).take_all()]
    assert ours == [first, second]


def test_the_checksum_is_that_of_castagnoli() -> None:
    assert crc32c(b"123456789") == crc32c_of_python(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("place", "said"), [(0, "does not begin as one"), (20, "checksum says"), (-9, "is cut")])
def test_a_broken_record_is_named(place: int, said: str, tmp_path: Path) -> None:
    (path,) = data.from_items([{"id": 1, "word": "a" * 30}], parallelism=1).write_tfrecords(str(tmp_path))
    content = bytearray(Path(path).read_bytes())
    if place < 0:
        content = content[:place]
    else:
        content[place] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(data.ReadError, match=f"record 0.*{said}"):
        data.read_tfrecords(str(tmp_path)).take_all()
    Path(path).write_bytes(framed(b"\xff\xff\xff"))
    with pytest.raises(data.ReadError):
        data.read_tfrecords(str(tmp_path)).take_all()
    assert data.read_tfrecords(str(tmp_path), raw=True).take_all() == [{"record": b"\xff\xff\xff"}]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([0.1]), "no float of 32 bits"),
        (pa.array([2**63], pa.uint64()), "above 2"),
        (pa.array([[1, None]]), "a null in a list"),
        (pa.array([{"a": 1}]), "is no feature"),
        (pa.array([dt.date(2024, 1, 1)]), "is no feature"),
    ],
)
def test_what_no_feature_can_hold_is_refused(column: pa.Array, said: str, tmp_path: Path) -> None:
    with pytest.raises(data.WriteError, match=f"column 'x'.*{said}"):
        data.from_arrow(pa.table({"x": column})).write_tfrecords(str(tmp_path))
    assert not list(tmp_path.glob("*.tfrecord"))


def test_a_feature_of_several_values_in_a_later_file_says_what_to_write(tmp_path: Path) -> None:
    for number, ids in enumerate([[1], [1, 2]]):
        data.from_items([{"ids": ids}]).write_tfrecords(str(tmp_path / str(number)))
    paths = [str(tmp_path / "0"), str(tmp_path / "1")]
    with pytest.raises(data.DataError, match="ids"):
        data.read_tfrecords(paths).take_all()
    assert data.read_tfrecords(paths, lists=["ids"]).take_all() == [{"ids": [1]}, {"ids": [1, 2]}]
