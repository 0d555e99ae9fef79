"""`ray.autoscaler.sdk` of Ray 2.60: a wish for resources is noted in the log; what would start machines is refused."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

_log = logging.getLogger("ray")


def request_resources(
    num_cpus: int | None = None,
    bundles: list[dict[str, float]] | None = None,
    bundle_label_selectors: list[dict[str, str]] | None = None,
) -> None:
    """Nothing scales by it: tasks that no node can hold wait for one, and the cluster's demand is in `ray status`."""
    _log.info("resources asked for (num_cpus=%s, bundles=%s): add nodes with `ray start`", num_cpus, bundles)


def _refused(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"ray.autoscaler.sdk.{name} would start or reach machines, which Weft leaves to who runs them: "
            "start nodes with `ray start`, and jobs with `ray job submit`"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


bootstrap_config = _refused("bootstrap_config")
configure_logging = _refused("configure_logging")
create_or_update_cluster = _refused("create_or_update_cluster")
fillout_defaults = _refused("fillout_defaults")
get_docker_host_mount_location = _refused("get_docker_host_mount_location")
get_head_node_ip = _refused("get_head_node_ip")
get_worker_node_ips = _refused("get_worker_node_ips")
register_callback_handler = _refused("register_callback_handler")
rsync = _refused("rsync")
run_on_cluster = _refused("run_on_cluster")
teardown_cluster = _refused("teardown_cluster")
