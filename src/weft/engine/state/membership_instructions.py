"""What `membership` has its shell do, in order."""

from __future__ import annotations

import msgspec

from weft.engine.state.instructions import Ending
from weft.engine.wire.link_messages import LinkMessage, Member


class Instruction(msgspec.Struct, frozen=True):
    """What the shell must do, in order."""


class Connect(Instruction, frozen=True):
    """Make a link to that node; `link_ready` or `connect_failed` follows."""

    number: int
    address: str


class Send(Instruction, frozen=True):
    link: int
    message: LinkMessage


class Close(Instruction, frozen=True):
    """`link_closed` follows."""

    link: int
    reason: str


class Use(Instruction, frozen=True):
    """From now on the link is the one to that node."""

    link: int
    number: int


class Joined(Instruction, frozen=True):
    """This node has its number, and links to all that were there before it."""


class Linked(Instruction, frozen=True):
    member: Member


class Deliver(Instruction, frozen=True):
    """A message that is not about membership."""

    link: int
    message: LinkMessage


class NodeGone(Instruction, frozen=True):
    """Its link is no longer in use; what was on it is dead to this node."""

    number: int
    reason: str


class Keep(Instruction, frozen=True):
    """On the head: write the row to the control store. `kept` follows for one that is alive."""

    member: Member


class HeadLost(Instruction, frozen=True):
    """The head is dead to this node; certainly, when its machine has said so."""

    reason: str
    is_certain: bool
    is_winner: bool = False
    """It is who has won after the head, was not heard as head yet, and is dead: its machine says so."""


class HeadFound(Instruction, frozen=True):
    """The head that was doubted is heard again."""


class Lost(Instruction, frozen=True):
    """The head does not want this node, or the user has asked the cluster to end: the node ends."""

    reason: str
    ending: Ending = Ending.LEFT_BEHIND
