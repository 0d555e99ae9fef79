"""Output in files that are turned."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from weft.jobs import log_files
from weft.jobs.log_files import LogWriter, read


def read_all(folder: str, offset: int = 0) -> bytes:
    found = b""
    while True:
        data, offset = read(folder, offset, 7)
        if not data:
            return found
        found += data


@given(parts=st.lists(st.binary(max_size=40), max_size=20))
def test_what_is_written_is_read_back_up_to_the_files_that_are_kept(
    parts: list[bytes],
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        writer = LogWriter(folder, file_bytes=16, files_kept=3)
        for part in parts:
            writer.write(part)
        writer.close()
        whole = b"".join(parts)
        kept = read_all(folder)
        assert whole.endswith(kept)
        assert len(kept) >= min(len(whole), 33)
        assert len(list(Path(folder).iterdir())) <= 3


def test_a_reader_goes_on_where_it_was_when_files_are_turned(tmp_path: Path) -> None:
    folder = str(tmp_path)
    writer = LogWriter(folder, file_bytes=4, files_kept=2)
    writer.write(b"abc")
    data, offset = read(folder, 0, 100)
    assert data == b"abc"
    writer.write(b"defgh")
    assert read_all(folder, offset) == b"defgh"
    writer.close()


def test_there_is_nothing_where_nothing_was_written(tmp_path: Path) -> None:
    assert log_files.read(str(tmp_path / "none"), 0, 10) == (b"", 0)
