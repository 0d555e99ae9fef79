"""`weft token`: the token of a cluster, or the one that only reads."""

from __future__ import annotations

import argparse

from weft.cli.options import Commands, add_address, add_command
from weft.engine.cluster import launch, tokens
from weft.engine.cluster.client import Client
from weft.net.auth import read_only


def add(commands: Commands) -> None:
    token = add_command(
        commands,
        "token",
        _token,
        "print the token of a cluster, or one that only reads",
        "Who has the token can run code in the cluster. With --read-only: one for people and programs that shall look "
        "(`weft status`, `list`, `logs`, `job list`, `job logs`) and change nothing; they give it as WEFT_TOKEN or in "
        "a file. It follows from the cluster's own and ends with it.",
        "weft token --read-only\nweft token --address 10.0.0.1:6379 --token-file token --read-only",
    )
    token.add_argument("--read-only", action="store_true", help="the one that changes nothing")
    add_address(token)


def _token(options: argparse.Namespace) -> int:
    address = options.address
    cluster = launch.normal(address) if address and launch.is_cluster_address(address) else Client(address).address
    found = tokens.find(cluster, options.token_file)
    print((read_only(found) if options.read_only else found).decode())
    return 0
