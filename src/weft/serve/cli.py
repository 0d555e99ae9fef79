"""`weft serve run`, `deploy`, `rollback`, `status` and `shutdown`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

import weft
from weft import serve
from weft.job_submission import JobSubmissionClient
from weft.serve.api import deployed_documents, remember_documents
from weft.serve.config_file import BadConfig, WantedApplication, WantedServing, differences, parse

_OF_THE_ONLY_ONE = "of the cluster (default: the variable WEFT_ADDRESS, else the only one with a node on this machine)"


def add(parser: argparse.ArgumentParser) -> None:
    """The commands, each with the function that runs it as `command`."""
    parser.description = "Serve applications, and look at what is served."
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    run = commands.add_parser(
        "run",
        help="serve an application over HTTP until interrupted",
        description="Starts a node (or attaches to a cluster), runs the application that MODULE:APP names and answers "
        "HTTP until it is interrupted, as in `weft serve run shop:app --port 8000`.",
    )
    run.add_argument("app", metavar="MODULE:APP", help="what bind() returned, or a deployment without arguments")
    run.add_argument("--name", default="default", help="of the application (default: default)")
    run.add_argument("--route-prefix", metavar="PATH", default="/", help="the paths that it answers (default: /)")
    run.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    run.add_argument("--port", type=int, default=8000, help="0 for any free one (default: 8000)")
    run.add_argument(
        "--grpc-port", type=int, default=9000, help="with --grpc-servicer; 0 for any free one (default: 9000)"
    )
    run.add_argument(
        "--grpc-servicer",
        metavar="MODULE:FUNCTION",
        action="append",
        default=[],
        help="serve gRPC too: a generated function such as shop_pb2_grpc:add_ShopServicer_to_server; may be repeated",
    )
    run.add_argument("--address", metavar="HOST:PORT", help="of the cluster to run in (default: start a node)")
    run.set_defaults(command=_run)
    deploy = commands.add_parser(
        "deploy",
        help="have a cluster serve what a file says, and nothing else",
        description="Reads a YAML file (docs/serve has an example) and has a running cluster serve the applications in "
        "it. Applications that are not in the file end; those that changed are updated without a failed request.",
    )
    deploy.add_argument("file", metavar="FILE.yaml", help="see docs/serve")
    deploy.add_argument("--address", metavar="HOST:PORT", help=_OF_THE_ONLY_ONE)
    deploy.add_argument("--dry-run", action="store_true", help="only say what would change since the last file")
    deploy.set_defaults(command=_deploy)
    rollback = commands.add_parser(
        "rollback",
        help="have a cluster serve what the file before the last one said",
        description="Takes back the last `weft serve deploy`: the file before it is applied again, with the code that "
        "its import paths lead to now.",
    )
    rollback.add_argument("--address", metavar="HOST:PORT", help=_OF_THE_ONLY_ONE)
    rollback.set_defaults(command=_rollback)
    shutdown = commands.add_parser(
        "shutdown",
        help="end all applications of a cluster",
        description="Ends all applications of a cluster and its HTTP fronts. The cluster goes on.",
    )
    shutdown.add_argument("--address", metavar="HOST:PORT", help=_OF_THE_ONLY_ONE)
    shutdown.set_defaults(command=_shutdown)
    status = commands.add_parser(
        "status",
        help="the applications of a cluster, as JSON",
        description="Prints the applications, deployments and replicas of a cluster and how they are, as JSON.",
    )
    status.add_argument("--address", metavar="HOST:PORT", help=_OF_THE_ONLY_ONE)
    status.set_defaults(command=_status)


def load(path: str) -> Any:
    """The object that MODULE:APP names; the working directory is searched too."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"an application is named MODULE:APP, but got {path!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise LookupError(f"module {module} has no {name!r}") from None
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise LookupError(f"there is no module {module!r} here or on the path") from None


def _run(options: argparse.Namespace) -> int:
    app = load(options.app)
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    context = weft.init(options.address) if options.address else weft.init()
    try:
        serve.run(app, name=options.name, route_prefix=options.route_prefix)
        url = serve.start(http_options=serve.HTTPOptions(host=options.host, port=options.port))
        print(f"serving {options.name} at {url}{options.route_prefix}", flush=True)
        if options.grpc_servicer:
            served = serve.GRPCOptions(tuple(options.grpc_servicer), options.host, options.grpc_port)
            print(f"serving gRPC at {serve.start_grpc(served)}", flush=True)
        print(f"weft serve status --address {context['address']}", flush=True)
        interrupted.wait()
        _end(options)
    finally:
        weft.shutdown()
    return 0


def _end(options: argparse.Namespace) -> None:
    """In a cluster of others, their applications go on."""
    if options.address:
        serve.delete(options.name)
    else:
        serve.shutdown()


def _deploy(options: argparse.Namespace) -> int:
    try:
        document = read(options.file)
        prepared = _prepared(document)
    except (OSError, BadConfig, LookupError) as error:
        print(f"weft serve deploy: {options.file}: {error}", file=sys.stderr)
        return 2
    weft.init(_meant_cluster(options))
    try:
        before = deployed_documents()
        for line in differences(before[-1] if before else {}, document):
            print(line, file=sys.stdout if options.dry_run else sys.stderr, flush=True)
        if options.dry_run:
            return 0
        _apply(prepared)
        remember_documents([*before, document])
    finally:
        weft.shutdown()
    return 0


def _rollback(options: argparse.Namespace) -> int:
    weft.init(_meant_cluster(options))
    try:
        before = deployed_documents()
        if len(before) < 2:
            print("weft serve rollback: there is no file that was deployed before the last one", file=sys.stderr)
            return 2
        for line in differences(before[-1], before[-2]):
            print(line, file=sys.stderr, flush=True)
        try:
            prepared = _prepared(before[-2])
        except (BadConfig, LookupError) as error:
            print(f"weft serve rollback: the file before the last one: {error}", file=sys.stderr)
            return 2
        _apply(prepared)
        remember_documents(before[:-1])
    finally:
        weft.shutdown()
    return 0


def _prepared(document: Any) -> tuple[WantedServing, list[tuple[WantedApplication, Any]]]:
    """What it says, and its applications as they can be run: BadConfig, LookupError."""
    wanted = parse(document)
    return wanted, [(one, build(one)) for one in wanted.applications]


def _apply(prepared: tuple[WantedServing, list[tuple[WantedApplication, Any]]]) -> None:
    """Have the cluster serve this, and nothing else."""
    wanted, apps = prepared
    names = {one.name for one in wanted.applications}
    for name in serve.status().keys() - names:
        serve.delete(name)
    for one, app in apps:
        serve.run(app, name=one.name, route_prefix=one.route_prefix, settings=one.deployments)
    url = serve.start(http_options=wanted.http)
    if wanted.grpc is not None:
        print(f"serving gRPC at {serve.start_grpc(wanted.grpc)}", flush=True)
    for one in wanted.applications:
        print(f"serving {one.name}" + (f" at {url}{one.route_prefix}" if one.route_prefix else ""), flush=True)


def _meant_cluster(options: argparse.Namespace) -> str:
    """The address of the cluster, which is said where none was given; ConnectionError where there are several."""
    if options.address is not None:
        return str(options.address)
    found = JobSubmissionClient().get_address()
    print(f"weft serve: the cluster is {found}", file=sys.stderr, flush=True)
    return found


def read(path: str) -> Any:
    """The file, which may say anything: OSError, BadConfig."""
    import yaml  # type: ignore[import-untyped]

    with open(path) as file:
        try:
            return yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise BadConfig(f"it is not YAML: {error}") from None


def build(wanted: WantedApplication) -> Any:
    """The application that the path names, made with the arguments."""
    found = load(wanted.import_path)
    is_builder = callable(found) and not isinstance(found, serve.Application | serve.Deployment)
    if not is_builder and wanted.args:
        raise BadConfig(f"{wanted.import_path} takes no args: only a function that returns an application does")
    return found(**wanted.args) if is_builder else found


def _shutdown(options: argparse.Namespace) -> int:
    weft.init(_meant_cluster(options))
    try:
        serve.shutdown()
    finally:
        weft.shutdown()
    return 0


def _status(options: argparse.Namespace) -> int:
    weft.init(_meant_cluster(options))
    try:
        found = {name: {"status": one.status, **asdict(one)} for name, one in serve.status().items()}
    finally:
        weft.shutdown()
    print(json.dumps(found, indent=2))
    return 0
