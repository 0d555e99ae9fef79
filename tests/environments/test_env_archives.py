"""Archives that users give: unpacked inside one folder, or refused as a whole."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.environments import archives
from weft.environments.archives import unpack
from weft.environments.packages import copy_working_dir
from weft.jobs import supervisor
from weft.jobs.job_runner import Report, Runner, RunOrder
from weft.net.loop import Loop

MOST = 1 << 20
Unpacker = Callable[[Path, Path], str]


def by_job(archive: Path, folder: Path) -> str:
    """As the node of a submitted job does it."""
    loop = Loop()
    try:
        runner = Runner(loop, lambda: str(folder), lambda: "")
        runner.keep_package("package.zip", 0, archive.read_bytes())
        order = runner._order(RunOrder("job", "true", {"working_dir": "package.zip"}))
        supervisor._unpack(order.archives)
        return order.folder
    finally:
        loop.close()


def by_driver(archive: Path, folder: Path) -> str:
    """As the process that submits does it."""
    return copy_working_dir(str(archive), [], str(folder))


@pytest.fixture(params=[by_job, by_driver])
def unpacker(request: pytest.FixtureRequest) -> Unpacker:
    chosen: Unpacker = request.param
    return chosen


def archive_with(path: Path, name: str, mode: int = 0o100777, text: str = "x") -> Path:
    made = path / "given.zip"
    entry = zipfile.ZipInfo("placeholder")
    entry.filename = name
    entry.external_attr = mode << 16
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("first.txt", "harmless")
        file.writestr(entry, text)
    return made


@pytest.mark.parametrize("how", ["absolute", "upwards", "upwards through a folder", "backslashes", "the folder"])
def test_an_archive_that_names_a_file_elsewhere_is_refused_and_changes_no_mode(
    tmp_path: Path, unpacker: Unpacker, how: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    secret.chmod(0o600)
    folder = tmp_path / "folder"
    folder.mkdir()
    up = "../" * 20 + str(secret)[1:]
    name = {
        "absolute": str(secret),
        "upwards": up,
        "upwards through a folder": "a/" + up,
        "backslashes": "..\\..\\secret",
        "the folder": ".",
    }[how]
    with pytest.raises(ValueError, match="is refused"):
        unpacker(archive_with(tmp_path, name), folder)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and secret.read_text() == "private"
    assert not [file for _, _, files in os.walk(folder) for file in files if file != "package.zip"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_an_archive_are_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(ValueError, match="link or a device"):
        unpack(str(archive_with(tmp_path, "link", kind | 0o777, "/etc/passwd")), str(tmp_path / "to"), MOST)


def test_an_archive_that_swells_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    swelling = archive_with(tmp_path, "zeros", text="\0" * (MOST + 1))
    with pytest.raises(ValueError, match="1,048,576 are the most"):
        unpack(str(swelling), str(tmp_path / "to"), MOST)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", os.urandom(300)])
def test_what_is_no_archive_is_a_value_error(tmp_path: Path, unpacker: Unpacker, data: bytes) -> None:
    (tmp_path / "junk.zip").write_bytes(data)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpacker(tmp_path / "junk.zip", tmp_path / "folder")


def test_modes_of_files_inside_are_kept(tmp_path: Path, unpacker: Unpacker) -> None:
    (tmp_path / "folder").mkdir()
    where = unpacker(archive_with(tmp_path, "bin/run", 0o100755, "#!"), tmp_path / "folder")
    assert stat.S_IMODE(os.stat(os.path.join(where, "bin/run")).st_mode) == 0o755


def test_the_archive_of_a_job_is_unpacked_by_its_supervisor_and_not_on_the_loop_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack_here(*_: object) -> int:
        raise AssertionError("while the daemon unpacks, its node gives no sign of life")

    monkeypatch.setattr(archives, "unpack", unpack_here)
    loop, reports = Loop(), list[Report]()
    runner = Runner(loop, lambda: str(tmp_path / "jobs"), lambda: "")
    runner.on_report = reports.append
    try:
        given = archive_with(tmp_path, "second.txt").read_bytes()
        runner.keep_package("package.zip", 0, given)
        runner.start(RunOrder("job", "cat first.txt second.txt", {"working_dir": "package.zip"}))
        runner.keep_package("package.zip", 0, given)  # of another who submits the same, at any time
        while not any(report.has_ended for report in reports):
            loop.run_once(-1)
        assert reports[-1].exit_code == 0
        assert runner.read_log("job", 0, 100)[0] == b"harmlessx"
    finally:
        runner.close()
        loop.close()


def test_a_job_whose_archive_is_refused_fails_and_says_why(tmp_path: Path) -> None:
    loop, reports = Loop(), list[Report]()
    runner = Runner(loop, lambda: str(tmp_path / "jobs"), lambda: "")
    runner.on_report = reports.append
    try:
        runner.keep_package("package.zip", 0, archive_with(tmp_path, "../../out").read_bytes())
        runner.start(RunOrder("job", "true", {"working_dir": "package.zip"}))
        while not reports:
            loop.run_once(-1)
        assert reports[0].exit_code is None
        assert "leads out of the folder" in reports[0].message
    finally:
        runner.close()
        loop.close()


def damaged(path: Path, how: int, mark: bytes, after: int) -> Path:
    """An archive with one wrong byte in what it has compressed."""
    made = path / "given.zip"
    with zipfile.ZipFile(made, "w", how) as file:
        file.writestr("first.txt", "harmless")
        file.writestr("second.txt", os.urandom(2000))
    content = bytearray(made.read_bytes())
    content[content.rindex(mark) + after] ^= 0xFF
    made.write_bytes(content)
    return made


def clashing(path: Path, first: str, second: str) -> Path:
    made = path / "given.zip"
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(first, "")
        file.writestr(second, "x")
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda path: damaged(path, zipfile.ZIP_LZMA, b"second.txt", -200),
        lambda path: damaged(path, zipfile.ZIP_BZIP2, b"BZh", 12),
        lambda path: damaged(path, zipfile.ZIP_STORED, b"second.txt", -200),
        lambda path: archive_with(path, "n" * 300),
        lambda path: clashing(path, "x", "x/y"),
        lambda path: clashing(path, "x/", "x"),
    ],
    ids=["lzma", "bzip2", "stored", "a long name", "a file as a folder", "a folder as a file"],
)
def test_an_archive_that_fails_half_way_is_named_and_nothing_of_it_stays(
    tmp_path: Path, unpacker: Unpacker, make: Callable[[Path], Path]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"(given|package)\.zip cannot be unpacked: .+"):
        unpacker(make(tmp_path), folder)
    assert not [file for _, _, files in os.walk(folder) for file in files if file != "package.zip"]


def test_an_archive_of_folders_in_each_other_without_end_is_refused(tmp_path: Path) -> None:
    """What removes such folders calls itself for each, and would end with another error half way."""
    made = tmp_path / "deep.zip"
    with zipfile.ZipFile(made, "w") as file:
        for depth in (150, 900, 1800):
            file.writestr("a/" * depth + "x", "")
    target = tmp_path / "to"
    with pytest.raises(ValueError, match="more than 200 parts"):
        unpack(str(made), str(target), MOST)
    assert not target.exists()


def test_an_archive_of_very_many_empty_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 9)
    made = tmp_path / "many.zip"
    with zipfile.ZipFile(made, "w") as file:
        for number in range(10):
            file.writestr(str(number), "")
    with pytest.raises(ValueError, match="10 entries; 9 are the most"):
        unpack(str(made), str(tmp_path / "to"), MOST)
    assert not (tmp_path / "to").exists()
