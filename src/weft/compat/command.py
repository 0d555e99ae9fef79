"""The `ray` command: Ray's words for what `weft` does. Where the real Ray is installed, its own command runs.

`start`, `stop`, `status`, `memory`, `timeline`, `job`, `list`, `summary` and `logs` are translated; the others of Ray's
are refused by name. Nodes that it starts run jobs in which `import ray` finds Weft.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weft.cli import main as weft_command
from weft.compat import alias
from weft.compat.addresses import cluster_address

_AS_THEY_ARE = ("--head", "--block")
_WITH_A_VALUE = ("--port", "--num-cpus", "--num-gpus", "--resources", "--object-store-memory", "--storage")
_SWITCHES_LEFT_OUT = "--disable-usage-stats --no-monitor --enable-object-reconstruction --verbose -v".split()
_VALUES_LEFT_OUT = (
    "--include-dashboard --ray-client-server-port --redis-password --redis-username --min-worker-port "
    "--max-worker-port --worker-port-list --node-manager-port --object-manager-port --runtime-env-agent-port "
    "--dashboard-agent-listen-port --dashboard-agent-grpc-port --dashboard-grpc-port --metrics-export-port --temp-dir "
    "--plasma-directory --object-spilling-directory --log-style --log-color --node-name --tracing-startup-hook "
    "--memory --system-config"
).split()
_REFUSED = {
    "up": "write your machines' start-up as `ray start`, or see deploy/ for Slurm and Kubernetes",
    "down": "end the nodes with `ray stop` on each machine, or all of them with `weft stop --cluster`",
    "attach": "open a shell on the machine",
    "exec": "submit it: `ray job submit -- COMMAND`",
    "submit": "submit it: `ray job submit -- python SCRIPT`",
    "dashboard": "run `weft dashboard`",
    "debug": "run `weft debug`",
    "stack": "run `weft stack`",
    "healthcheck": "run `weft health`",
    "drain-node": "run `weft drain NODE`",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if alias.VARIABLE not in os.environ and alias.installed_ray() is not None:
        from ray.scripts.scripts import main as real_command  # type: ignore[import-not-found, unused-ignore]

        return int(real_command() or 0)
    if not given or given[0] in ("-h", "--help"):
        print(f"{__doc__}\n`weft --help` and `weft COMMAND --help` say more.")
        return 0 if given else 2
    if given[0] == "--version":
        print(f"ray, version {alias.API_LEVEL} (the API; by Weft)")
        return 0
    translate = _COMMANDS.get(given[0])
    if translate is None:
        hint = _REFUSED.get(given[0], f"there are: {', '.join(_COMMANDS)}")
        print(f"ray: Weft has no `ray {given[0]}`; {hint}", file=sys.stderr)
        return 2
    alias.install_quietly()
    try:
        translated = translate(given[1:])
    except (OSError, ValueError) as error:
        print(f"ray: {error}", file=sys.stderr)
        return 1
    return weft_command.main([given[0], *translated])


def start(given: list[str]) -> list[str]:
    """The arguments of `weft start`.

    >>> start(["--head", "--port=6400", "--labels", "zone=a,kind=b", "--disable-usage-stats"])
    ['--port', '6400', '--head', '--labels', '{"zone": "a", "kind": "b"}']
    >>> start(["--address=ray://10.0.0.1:10001", "--node-ip-address", "10.0.0.2"])
    ['--address', '10.0.0.1:6379', '--host', '10.0.0.2']
    """
    parser = argparse.ArgumentParser(prog="ray start", allow_abbrev=False)
    for name in (*_AS_THEY_ARE, *_SWITCHES_LEFT_OUT):
        parser.add_argument(name, action="store_true")
    for name in (*_WITH_A_VALUE, *_VALUES_LEFT_OUT):
        parser.add_argument(name)
    for name in ("--address", "--node-ip-address", "--labels", "--labels-file", "--dashboard-host", "--dashboard-port"):
        parser.add_argument(name)
    options = vars(parser.parse_args(given))
    made = [word for name in _WITH_A_VALUE if (value := options[_key(name)]) is not None for word in (name, value)]
    made += [name for name in _AS_THEY_ARE if options[_key(name)]]
    if options["address"] and not options["head"]:
        made += ["--address", cluster_address(options["address"])]
    if options["node_ip_address"]:
        made += ["--host", options["node_ip_address"]]
    labels = _file(options["labels_file"]) if options["labels_file"] else {}
    labels |= _labels(options["labels"] or "")
    if labels:
        made += ["--labels", json.dumps(_checked(labels))]
    for name, variable in (("dashboard_host", "WEFT_DASHBOARD_HOST"), ("dashboard_port", "WEFT_DASHBOARD_PORT")):
        if options[name]:
            os.environ[variable] = options[name]
    left_out = [name for name in _VALUES_LEFT_OUT if options[_key(name)] is not None]
    if left_out:
        print(f"ray: {', '.join(left_out)} has no counterpart in Weft and is left out", file=sys.stderr)
    return made


def stop(given: list[str]) -> list[str]:
    """The arguments of `weft stop`: all nodes of this user here, unless an address is named.

    >>> stop(["--address", "10.0.0.1:6379", "--force", "-g", "30"])
    ['--force', '--address', '10.0.0.1:6379']
    """
    parser = argparse.ArgumentParser(prog="ray stop", allow_abbrev=False)
    parser.add_argument("--force", "-f", action="store_true")
    parser.add_argument("--grace-period", "-g")
    parser.add_argument("--address", default=os.environ.get("WEFT_ADDRESS") or os.environ.get("RAY_ADDRESS"))
    parser.add_argument("--verbose", "-v", action="store_true")
    options = parser.parse_args(given)
    made = ["--force"] if options.force else []
    return [*made, *(["--address", cluster_address(options.address)] if options.address else ["--all"])]


def job(given: list[str]) -> list[str]:
    """The arguments of `weft job`. What is submitted finds `ray`.

    >>> job(["status", "--address", "http://10.0.0.1:8265", "raysubmit_1"])
    ['status', '--address', '10.0.0.1:6379', 'raysubmit_1']
    """
    if given[:1] != ["submit"]:
        return _with_addresses(given)
    parser = argparse.ArgumentParser(prog="ray job submit", allow_abbrev=False)
    for name in ("--address", "--submission-id", "--working-dir", "--metadata-json", "--runtime-env"):
        parser.add_argument(name)
    parser.add_argument("--runtime-env-json")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--verbose", "-v", action="store_true")
    parser.add_argument("entrypoint", nargs=argparse.REMAINDER)
    options = parser.parse_args(given[1:])
    if options.runtime_env and options.runtime_env_json:
        raise ValueError("give --runtime-env or --runtime-env-json, not both")
    env = _file(options.runtime_env) if options.runtime_env else json.loads(options.runtime_env_json or "{}")
    made = ["submit", "--runtime-env-json", json.dumps(alias.with_alias(env))]
    for name in ("--submission-id", "--working-dir", "--metadata-json"):
        if value := getattr(options, _key(name)):
            made += [name, value]
    if options.address:
        made += ["--address", cluster_address(options.address)]
    if options.no_wait:
        made.append("--no-wait")
    words = options.entrypoint[1:] if options.entrypoint[:1] == ["--"] else options.entrypoint
    return [*made, "--", *words]


def timeline(given: list[str]) -> list[str]:
    """The arguments of `weft timeline`: Ray's command chooses the file's name by itself."""
    import time

    named = [word for word in given if not word.startswith("-") and word.endswith(".json")]
    made = _with_addresses(given)
    return made if named else [*made, f"ray-timeline-{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"]


def _with_addresses(given: list[str]) -> list[str]:
    """Every address in Weft's form; switches that only say how much is printed are left out."""
    made: list[str] = []
    for word in given:
        name, equals, value = word.partition("=")
        if name == "--address" and equals:
            made.append(f"--address={cluster_address(value)}")
        elif word not in ("-v", "--verbose"):
            made.append(cluster_address(word) if made and made[-1] == "--address" else word)
    return made


def _labels(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        return _checked(dict(json.loads(text)))
    pairs = [entry.partition("=") for entry in text.split(",") if entry]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise ValueError(
            f"Label string is not a key-value pair. --labels must be KEY=VALUE,KEY=VALUE or JSON, but got {text!r}"
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


def _checked(labels: dict[str, Any]) -> dict[str, str]:
    """ValueError for what is no text, and for names that are the cluster's own."""
    for key, value in labels.items():
        if not isinstance(value, str) or key.startswith("ray.io/"):
            raise ValueError(
                "Label string is not a key-value pair. Labels are texts, and their names do not begin with ray.io/, "
                f"but got {json.dumps({key: value})}"
            )
    return labels


def _file(path: str) -> dict[str, Any]:
    """A runtime environment: JSON, or YAML where PyYAML is installed."""
    text = Path(path).read_text()
    try:
        return dict(json.loads(text))
    except ValueError:
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise ValueError(f"{path} is no JSON; to read YAML: pip install pyyaml") from None
        return dict(yaml.safe_load(text))


def _key(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


_COMMANDS: dict[str, Callable[[list[str]], list[str]]] = {
    "start": start,
    "stop": stop,
    "job": job,
    "timeline": timeline,
    **dict.fromkeys(("status", "memory", "list", "summary", "logs"), _with_addresses),
}


if __name__ == "__main__":
    raise SystemExit(main())
