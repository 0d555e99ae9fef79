"""Node links with certificates of one's own: without one that the authority has signed, the token is not enough."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weft.cluster_utils import Cluster
from weft.engine.cluster import launch
from weft.net import endpoint
from weft.net.auth import Refused
from weft.net.tls import VARIABLES, Certificate

NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def make(folder: Path, name: str = "node") -> dict[str, str]:
    """A certificate that the folder's authority has signed, and the variables that name it."""
    folder.mkdir(exist_ok=True)
    if not (folder / "ca.pem").exists():
        openssl(folder, f"req -x509 {NEW_KEY} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    openssl(folder, f"req {NEW_KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr")
    openssl(folder, f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem")
    paths = (folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
    return dict(zip(VARIABLES, map(str, paths), strict=True))


def test_nodes_link_by_them_and_who_has_only_the_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.VARIABLE, "0")
    ours, others = make(tmp_path / "ours"), make(tmp_path / "others")

    def use(given: dict[str, str]) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    use(ours)
    cluster = Cluster(initialize_head=True)
    try:
        cluster.add_node()
        address, token = cluster.address, cluster._token
        assert len(launch.ask_nodes(address, token).members) == 2
        use({})
        with pytest.raises((Refused, OSError)):
            launch.ask_nodes(address, token)
        use(others)
        with pytest.raises((Refused, OSError)):
            launch.ask_nodes(address, token)
        use(ours)
        with pytest.raises(Refused, match="the token is wrong"):
            launch.ask_nodes(address, b"guessed")
    finally:
        cluster.shutdown()


def test_files_that_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in make(tmp_path).items():
        monkeypatch.setenv(name, value)
    certificate = Certificate()
    before = certificate.digest
    assert certificate.digest == before
    make(tmp_path)
    assert certificate.digest != before


def test_files_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = make(tmp_path)
    monkeypatch.setenv(VARIABLES[0], given[VARIABLES[0]])
    with pytest.raises(ValueError, match="belong together"):
        _ = Certificate().context
    monkeypatch.setenv(VARIABLES[1], given[VARIABLES[2]])
    monkeypatch.setenv(VARIABLES[2], given[VARIABLES[2]])
    with pytest.raises(RuntimeError, match="cannot be used"):
        _ = Certificate().context
