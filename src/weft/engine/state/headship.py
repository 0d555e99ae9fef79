"""Who acts as the cluster's head, as one node knows it: leases, epochs, and taking over from a head that is dead.

Pure: no I/O, no clock (each event comes with the time). Each head has an epoch. Who would be the next one writes
the row of the next epoch to the control store, if it is absent: so at most one node wins it. The row also ends the
head before: a head acts only while it has a lease, which it renews by reading that row. Absent: it may act until
`LEASE_S` after it *asked*. Present: it is head no more. A winner acts at once when the death of the head before is
certain (its machine says that nobody listens at its port), else once the lease that could have been renewed before
the row was written is over.

A minority can neither write nor read the store's rows. So its candidates win nothing, and a head that is cut off
rests when its lease is over. Who is cut off from half of the nodes or more then ends soon, so that no actor of it runs
while the others start it again, unless the store answers: its majority decides which side goes on, and may be with
fewer nodes. Whatever else has no head for `HEADLESS_S` ends, too.

A claim ends a head that may live, so a candidate first *asks*. Where the death is not certain it reads the row of the
next epoch. An answer that comes within `FRESH_S` says that the store's majority is on this side now. One that is
cut off gets none, and has nothing under way that could be delivered later. One that has just come back from a cut would
be answered too, before it hears the head: so unless most of the other nodes say that they have lost the head as well
(it is *backed*), the store must go on answering for `CALM_S`. A node that is linked to others that hear the head, or of
which one is about to take over, does not claim: only its own link may be broken. Nor does one whose link the head has
closed, before it knows whether the head is dead or has let go of it (`membership`).

    FOLLOWING <-> HEADLESS <-> ASKING -> CLAIMING -> WON -> ACTING <-> RESTING
        ^------------'------------'---------'---------'   (another one has won: HEADLESS until that one is heard)

Who has won and finds that another has won the epoch after steps down and follows; a head that acts has told others so,
and is left behind, alone: what runs on it is as dead to the others as that of any node that dies, and it comes back as
a new node (`cluster/returning`).

Invariants (checked over all nodes by the simulator and by `tests/engine/state/test_headship.py`):
    HED-1  at most one node wins an epoch.
    HED-2  no two nodes act at the same time, as long as clocks run at most `DRIFT` apart.
"""

from __future__ import annotations

import enum
import math

import msgspec

LEASE_S = 3.0
RENEW_S = 1.0
DRIFT = 1.25
"""A winner waits so much longer than a lease lasts: clocks may run apart."""
BEAT_S = 0.1
STAGGER_S = 0.15
"""Between the claims of candidates, in the order of their numbers: so they seldom collide."""
WINNER_S = 3.0 + LEASE_S * DRIFT
"""A winner that is not heard of for so long has died, too."""
HEADLESS_S = 30.0
HOPELESS_S = 3.0
"""Longer than a lease of the store, and than it takes a node to say that it has a server of it."""
ANSWER_S = 1.5
"""A store that has its majority on this side answers within so long."""
FRESH_S = 1.0
"""An answer that took longer says nothing about now."""
CALM_S = 2.0
"""All say something each second: who can be heard again has been heard by then."""
ASK_S = 0.5
"""Between two questions of a candidate."""


class Role(enum.Enum):
    FOLLOWING = "following"
    HEADLESS = "headless"
    ASKING = "asking"
    CLAIMING = "claiming"
    WON = "won"
    ACTING = "acting"
    RESTING = "resting"
    OVER = "over"


WAITING = (Role.HEADLESS, Role.ASKING, Role.CLAIMING)
"""It has no head, and has not won."""
DEPOSED = "another node has taken over as the cluster's head"


class Instruction(msgspec.Struct, frozen=True):
    """What the shell must do."""


class Claim(Instruction, frozen=True):
    """Write the row of that epoch if it is absent; `claimed` or `store_failed` follows."""

    epoch: int
    asked_at: float


class ReadClaim(Instruction, frozen=True):
    """Read the row of that epoch; `claim_read` or `store_failed` follows."""

    epoch: int
    asked_at: float


class Act(Instruction, frozen=True):
    """Take the head's duties over."""

    epoch: int


class End(Instruction, frozen=True):
    """This node has no part in the cluster any more."""

    reason: str


class Headship:
    """One node's view of who is the head."""

    def __init__(self) -> None:
        self.role = Role.FOLLOWING
        self.epoch = 1
        """The latest that this node knows of."""
        self.can_claim = False
        """It has access to the control store."""
        self._lost_at = 0.0
        self._patience = 0.0
        """How long after the loss it claims, beside its turn."""
        self.is_certain = False
        """The head that was lost is dead: its machine has said so, or it has itself."""
        self._were_certain = False
        """While a winner is waited for: all heads before that one are dead."""
        self._asks_at = 0.0
        self._answers_since = math.inf
        """Since then the store has answered each question in time."""
        self._answered_at = -math.inf
        self._acts_at = 0.0
        self._lease_until = -math.inf
        self._hopeless_since = math.inf
        self._renews_at = 0.0
        self._is_reading = False

    # ---- what this node is ----

    def may_act(self, now: float) -> bool:
        """Whether it is the head at this moment, whatever has been noticed until now."""
        return self.role in (Role.ACTING, Role.RESTING) and now < self._lease_until

    @property
    def has_lease(self) -> bool:
        """False for a founder whose store has not answered yet: nobody may be let into it before."""
        return self._lease_until < math.inf

    def founded(self) -> None:
        """It begins the cluster: nobody else can claim before it has let others into its store."""
        self.role = Role.ACTING
        self._lease_until = math.inf

    def store_begun(self, now: float) -> list[Instruction]:
        """The founder's store exists from now on."""
        return [Claim(self.epoch, now)]

    def heard(self, epoch: int) -> bool:
        """Another node says that it acts as head in that epoch: whether this one follows it."""
        if self.role in (Role.ACTING, Role.RESTING, Role.OVER):
            return False
        is_news = epoch > self.epoch or (epoch == self.epoch and self.role in WAITING)
        if is_news:
            self.epoch = epoch
            self.role = Role.FOLLOWING
        return is_news

    def deposed(self, epoch: int) -> list[Instruction]:
        """Another node says that it acts in that epoch: a head of an earlier one acts no more from now on."""
        if self.role in (Role.ACTING, Role.RESTING) and epoch > self.epoch:
            return self._end(DEPOSED)
        return []

    def resigned(self) -> None:
        """It acts no more, whoever follows."""
        self.role = Role.OVER

    def head_lost(self, is_certain: bool, now: float) -> None:
        """The head is dead to this node."""
        if self.role is Role.FOLLOWING:
            self._lose(now, 0.0, is_certain)
        elif self.role in (*WAITING, Role.WON) and is_certain and not self._patience:
            self.is_certain = True
            self._acts_at = min(self._acts_at, now)

    def winner_lost(self, now: float) -> None:
        """Who has won the latest epoch is dead for certain, and was not heard as head. Heads before that may still have
        a lease."""
        if self.role in (Role.HEADLESS, Role.ASKING) and self._patience:
            self._lose(now, 0.0, self._were_certain)

    def head_found(self) -> None:
        """The head that was doubted is heard again. A claim that is under way is not taken back: it may be done."""
        if self.role in (Role.HEADLESS, Role.ASKING) and not self._patience:
            self.role = Role.FOLLOWING

    def _lose(self, now: float, patience: float, is_certain: bool = False) -> None:
        self.role, self._lost_at, self._patience = Role.HEADLESS, now, patience
        self._were_certain, self.is_certain = self.is_certain, is_certain
        self._asks_at, self._answers_since, self._answered_at = now, math.inf, -math.inf

    # ---- answers of the store ----

    def claimed(self, epoch: int, has_won: bool, asked_at: float, now: float) -> list[Instruction]:
        if self.role is Role.ACTING and epoch == self.epoch:
            self._lease_until = now + LEASE_S
            return []
        if self.role is not Role.CLAIMING or epoch != self.epoch + 1:
            return []
        self.epoch = epoch
        if not has_won:
            self._lose(now, WINNER_S)
            return []
        self.role = Role.WON
        self._acts_at = now if self.is_certain else now + LEASE_S * DRIFT
        return self._act(asked_at, now) if self.is_certain else []

    def claim_read(self, epoch: int, is_there: bool, asked_at: float, now: float) -> list[Instruction]:
        self._is_reading = False
        if epoch != self.epoch + 1:
            return []
        if is_there and self.role in (Role.HEADLESS, Role.ASKING, Role.WON):
            self.epoch = epoch
            self._lose(now, WINNER_S)
            return []
        if self.role in (Role.HEADLESS, Role.ASKING):
            self._was_answered(asked_at, now)
            return []
        if self.role not in (Role.WON, Role.ACTING, Role.RESTING):
            return []
        if is_there:
            return self._end(DEPOSED)
        if self.role is Role.WON:
            return self._act(asked_at, now)
        self._lease_until = max(self._lease_until, asked_at + LEASE_S)
        if self.may_act(now):
            self.role = Role.ACTING
        return []

    def _was_answered(self, asked_at: float, now: float) -> None:
        if now - asked_at <= FRESH_S:
            self._answers_since, self._answered_at = min(self._answers_since, asked_at), now
        else:
            self._answers_since, self._answered_at = math.inf, -math.inf

    def _act(self, asked_at: float, now: float) -> list[Instruction]:
        """It has won, the head before is dead or at rest, and nobody had won the next epoch when it asked."""
        if now >= asked_at + LEASE_S:
            return []  # it asks again
        self.role = Role.ACTING
        self._lease_until = asked_at + LEASE_S
        self._renews_at = asked_at + RENEW_S
        return [Act(self.epoch)]

    def store_failed(self, now: float) -> list[Instruction]:
        """The store did not answer, or refused."""
        self._is_reading = False
        if self.role in WAITING:
            self._answers_since, self._answered_at = math.inf, -math.inf
            self.role = Role.HEADLESS
        elif self.role is Role.ACTING and self._lease_until == math.inf:
            return [Claim(self.epoch, now)]
        return []

    # ---- time ----

    def beat(
        self,
        is_heard: bool,
        turn: int,
        now: float,
        is_cut_off: bool = False,
        is_backed: bool = False,
        can_another_claim: bool = False,
    ) -> list[Instruction]:
        """To be called each `BEAT_S`. `is_heard`: the head that this node has lost may live. `turn`: how many
        candidates that live have smaller numbers. `is_backed`: most of the other nodes have lost the head, too.
        `can_another_claim`: a node that is heard has access to the control store; where the store does not answer that
        one, it ends, too."""
        is_resting = self.role in (Role.ACTING, Role.RESTING) and now >= self._lease_until
        if is_cut_off and (is_resting or self._is_without_store(can_another_claim, now)):
            return self._end("this node is cut off from the cluster: it hears neither its head nor most of its nodes")
        if self.role in (*WAITING, Role.WON) and now - self._lost_at > HEADLESS_S:
            return self._end(f"the cluster has had no head for {HEADLESS_S:g} s that could be reached from here")
        if self.role in (Role.HEADLESS, Role.ASKING):
            return self._stand(is_heard, turn, now, is_backed)
        if (self.role is Role.WON and now >= self._acts_at) or (
            self.role in (Role.ACTING, Role.RESTING) and self.has_lease
        ):
            return self._renew(now)
        return []

    def _stand(self, is_heard: bool, turn: int, now: float, is_backed: bool) -> list[Instruction]:
        """As a candidate: ask, then claim."""
        is_due = now >= self._lost_at + self._patience + turn * STAGGER_S
        if not is_due or not self.can_claim or is_heard:
            self.role, self._answers_since = Role.HEADLESS, math.inf
            return []
        self.role = Role.ASKING
        calm_s = 0.0 if is_backed else CALM_S
        is_answered = now - self._answered_at <= FRESH_S and now - self._answers_since >= calm_s
        if self.is_certain or is_answered:
            self.role = Role.CLAIMING
            return [Claim(self.epoch + 1, now)]
        if self._is_reading or now < self._asks_at:
            return []
        self._is_reading = True
        self._asks_at = now + ASK_S
        return [ReadClaim(self.epoch + 1, now)]

    def has_no_hope(self, is_store_left: bool, now: float) -> bool:
        """Whether for a while neither this node nor one that it reaches could become the head: the store is gone."""
        if is_store_left or self.role not in WAITING:
            self._hopeless_since = math.inf
        else:
            self._hopeless_since = min(self._hopeless_since, now)
        return now - self._hopeless_since > HOPELESS_S

    def _is_without_store(self, can_another_claim: bool, now: float) -> bool:
        """Whether it has no head, and nothing says that the store's majority is on this side."""
        if self.role not in WAITING or self._patience:
            return False
        if not self.can_claim:
            return not can_another_claim
        return now - max(self._lost_at, self._answered_at) > ANSWER_S

    def _renew(self, now: float) -> list[Instruction]:
        if self.role is not Role.WON and now >= self._lease_until:
            self.role = Role.RESTING
            if now - self._lease_until > HEADLESS_S:
                return self._end(
                    f"the control store could not be reached for {HEADLESS_S:g} s, and this head's lease ended"
                )
        if self._is_reading or now < self._renews_at:
            return []
        self._is_reading = True
        self._renews_at = now + RENEW_S
        return [ReadClaim(self.epoch + 1, now)]

    def _end(self, reason: str) -> list[Instruction]:
        self.role = Role.OVER
        return [End(reason)]
