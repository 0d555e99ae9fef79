"""What the parts that deal with the dead are given: of the daemon, and of the cluster's other parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.cluster.heading import Heading
    from weft.engine.cluster.homes import Homes
    from weft.engine.cluster.keeping import Keeping
    from weft.engine.cluster.membership import Membership
    from weft.engine.cluster.names import Names
    from weft.engine.cluster.objects import Objects
    from weft.engine.cluster.pings import Pings
    from weft.engine.node.functions import FunctionTable
    from weft.engine.node.inheritance import InheritanceShell
    from weft.engine.node.kept_objects import KeptObjects
    from weft.engine.node.nodes import Nodes
    from weft.engine.node.operations import Operations
    from weft.engine.state.node import NodeState
    from weft.net.loop import Loop


@dataclass(frozen=True)
class Parts:
    """Each is complete without those that are given it."""

    # of the daemon
    loop: Loop
    port: _native.NodePort
    state: NodeState
    operations: Operations
    nodes: Nodes
    functions: FunctionTable
    here: InheritanceShell
    kept: KeptObjects
    # of the cluster
    members: Membership
    names: Names
    objects: Objects
    pings: Pings
    keeping: Keeping
    heading: Heading
    homes: Homes
