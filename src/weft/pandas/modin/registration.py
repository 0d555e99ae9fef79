"""Makes the engine known to Modin, from outside: the engine and the backend `Weft`, and the factory of its I/O.

Nothing is started here, and no more of Modin is loaded than `modin.config` and its list of factories.
"""

from __future__ import annotations

import os
from typing import Any

from weft.pandas.modin import modin_costs

NAME = "Weft"
STORAGE_FORMAT = "Pandas"
EXECUTION = f"{STORAGE_FORMAT}On{NAME}"


def register() -> None:
    """Do it once in this process; later calls do nothing."""
    if name_engine():
        add_factory()


def name_engine() -> bool:
    """The engine and its backend, by name; False where they were known."""
    from modin.config import Backend, Engine, Execution

    if NAME in (Engine.choices or ()):
        return False
    Engine.add_option(NAME)
    Backend.register_backend(NAME, Execution(STORAGE_FORMAT, NAME))
    return True


def use() -> None:
    """Register, and make Weft what new frames run on, unless the environment names another engine. Once: what the
    program chooses later stays."""
    from modin.config import Backend, Engine, ShowBackendSwitchProgress, StorageFormat

    if NAME in (Engine.choices or ()):
        return
    register()
    from weft.pandas.modin.journal import journal
    from weft.pandas.modin.small import set_default_limit

    if not any(parameter.varname in os.environ for parameter in (Backend, Engine, StorageFormat)):
        Backend.put(NAME)
        if ShowBackendSwitchProgress.varname not in os.environ:
            ShowBackendSwitchProgress.disable()
        set_default_limit()
        journal.warns_once = True
        from weft.pandas.modin import direct, exact, modin_repairs, near

        exact.register()
        near.register()  # what is put in front later is asked first: small frames go a way around both
        direct.register()
        modin_repairs.mend_readers()
        modin_costs.keep_classes()
        modin_costs.switch_metrics_off()


def add_factory() -> None:
    """How Modin finds the engine's I/O, which is loaded at its first use."""
    from modin.core.execution.dispatching.factories import factories

    def prepare(cls: Any) -> None:
        from weft.pandas.modin import sent_series
        from weft.pandas.modin.files import WeftIO

        cls.io_cls = WeftIO
        sent_series.register()
        modin_costs.keep_classes()
        _cut_for_cluster()

    # Modin finds a factory by its name in this module.
    name = f"{EXECUTION}Factory"
    factory = type(name, (factories.BaseFactory,), {"prepare": classmethod(prepare), "__doc__": "I/O on Weft."})
    setattr(factories, name, factory)
    factories.supported_executions = (*factories.supported_executions, EXECUTION)


def _cut_for_cluster() -> None:
    """Frames are cut into as many parts as there are CPUs, where Weft runs already and the user has not said."""
    from modin.config import NPartitions, ValueSource

    import weft

    if weft.is_initialized() and NPartitions.get_value_source() == ValueSource.DEFAULT:
        NPartitions.put(max(1, int(weft.cluster_resources().get("CPU", 1))))
