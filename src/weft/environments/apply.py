"""Taking an environment on, in the worker that is bound to it: variables, packages, folders, the setup hook.

Runs once in a worker, before its first function is loaded. What fails raises RuntimeEnvSetupError, and everything that
this worker is asked to run fails with it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.environments.merge import parse
from weft.exceptions import RuntimeEnvSetupError

if TYPE_CHECKING:
    from weft.environments.installed import Installed

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variables(inherited: Mapping[str, str], runtime_env: str) -> dict[str, str]:
    """The driver's variables and the environment's own, in which ${NAME} stands for what was there before.

    >>> variables({"PATH": "/bin"}, '{"env_vars": {"PATH": "${PATH}:/opt"}}')
    {'PATH': '/bin:/opt'}
    """
    return with_variables(inherited, parse(runtime_env).get("env_vars", {}))


def with_variables(inherited: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    expanded = {
        name: _REFERENCE.sub(lambda found: inherited.get(found[1], ""), text) if "${" in text else text
        for name, text in own.items()
    }
    return {**inherited, **expanded}


def enter(runtime_env: str, packages: Installed | None) -> None:
    """After the job's paths are set: what the environment adds goes before them."""
    env = parse(runtime_env)
    front: list[str] = []
    for path in env.get("py_modules", ()):
        _hold("py_modules", path)
        front.append(path)
    if working_dir := env.get("working_dir"):
        _hold("working_dir", working_dir)
        os.chdir(working_dir)
        front.append(working_dir)
    if packages is not None:
        front += _site_entries(packages)
        _show(packages)
    if front:
        sys.path[:] = front + [entry for entry in sys.path if entry not in front]
        sys.path_importer_cache.clear()
        _pass_on(front, packages)
    if setup := env.get("worker_process_setup_hook"):
        from weft.environments import hook

        hook.run(setup)


def _hold(field: str, path: str) -> None:
    from weft.environments import env_folders

    try:
        env_folders.hold(path)
        os.stat(path)
    except OSError as error:
        raise RuntimeEnvSetupError(f"the copy of {field} is gone: {error}") from None


def _site_entries(packages: Installed) -> list[str]:
    """Its site-packages, and what .pth files there add."""
    import site

    from weft.environments.installed import PARENT_LINK

    before = list(sys.path)
    known = {os.path.normcase(os.path.abspath(entry)) for entry in before}
    for name in sorted(os.listdir(packages.site)):
        if name.endswith(".pth") and name != PARENT_LINK:
            site.addpackage(packages.site, name, known)
    added = [entry for entry in sys.path if entry not in before]
    sys.path[:] = before
    return [packages.site, *added]


def _show(packages: Installed) -> None:
    """Programs that tasks start find the installed scripts and this Python's packages."""
    os.environ["VIRTUAL_ENV"] = packages.folder
    os.environ["PATH"] = os.path.join(packages.folder, "bin") + os.pathsep + os.environ.get("PATH", os.defpath)
    sys.executable = packages.python
    if (spawn := sys.modules.get("multiprocessing.spawn")) is not None:
        spawn.set_executable(packages.python)


def _pass_on(front: list[str], packages: Installed | None) -> None:
    """Pythons that tasks start import the copied code too; installed packages they find by themselves."""
    own = [entry for entry in front if packages is None or not entry.startswith(packages.folder)]
    if own:
        rest = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*own, rest] if rest else own)
