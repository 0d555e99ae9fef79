"""Who gets a lease, in which order, and whose is asked back."""

from __future__ import annotations

from node_rig import DRIVER, Rig, grants, killed, sent, two_cpus

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.demands import PATIENCE_TICKS
from weft.engine.state.stuck import why_stuck
from weft.engine.state.workers import Place
from weft.engine.wire.messages import ExitProcess


def revoked(instructions: list[do.Instruction]) -> list[int]:
    return [one.lease for one in sent(instructions, do.RevokeLease)]


def test_leases_are_granted_up_to_the_cpus_and_then_as_they_come_back() -> None:
    rig = two_cpus()
    (first, _), (second, _) = rig.want(5)
    assert rig.free() == {"CPU": 0}
    ((third, _),) = grants(rig.give_back(first))
    assert third not in (first, second)


def test_a_worker_is_bound_once_before_its_first_grant() -> None:
    rig = two_cpus()
    done = rig.feed(ev.LeaseRequested(DRIVER, 1, 1))
    bind = next(one.binding for one in done if isinstance(one, do.BindWorker))
    assert (bind.job, bind.sys_path, bind.environment) == (1, ["/lib"], {"A": "1"})
    assert [type(one) for one in done if isinstance(one, do.Tell)] == [do.BindWorker, do.GrantLease]
    lease, worker = grants(done)[0]
    rig.give_back(lease)
    again = rig.feed(ev.LeaseRequested(DRIVER, 1, 1))
    assert grants(again)[0][1] == worker
    assert not [one for one in again if isinstance(one, do.BindWorker | do.SendMessage)]


def test_a_worker_that_retires_ends_when_its_lease_has_come_back() -> None:
    rig = two_cpus()
    ((lease, worker),) = rig.want(1)
    assert revoked(rig.feed(ev.WorkerRetired(worker))) == [lease]
    assert revoked(rig.feed(ev.WorkerRetired(worker))) == []
    rig.want(2)
    done = rig.give_back(lease)
    (told,) = [one for one in done if isinstance(one, do.SendMessage) and isinstance(one.message, ExitProcess)]
    assert told.process == worker and told.message.drain
    assert worker not in [granted for _, granted in grants(done)]
    rig.die(worker, 0)
    assert worker not in [granted for _, granted in rig.want(2)]


def test_a_worker_that_retires_and_dies_is_like_any_that_dies() -> None:
    rig = two_cpus()
    ((_, worker),) = rig.want(1)
    rig.feed(ev.WorkerRetired(worker))
    rig.die(worker)
    assert rig.feed(ev.WorkerRetired(worker)) == []


def test_the_newest_wanted_count_counts() -> None:
    rig = two_cpus()
    leases = rig.want(9)
    rig.want(0)
    assert not grants(rig.give_back(leases[0][0]))
    assert rig.free() == {"CPU": 1}


def test_jobs_take_turns_whatever_they_want() -> None:
    rig = two_cpus()
    drivers = {job: (job, 1) for job in (2, 3)}
    held = [lease for lease, _ in rig.want(50)]
    for job, driver in drivers.items():
        rig.join(driver, job)
        rig.define(1, process=driver, CPU=1)
        rig.want(50, process=driver)
    receivers = []
    holder = dict.fromkeys(held, DRIVER)
    for _ in range(6):
        lease = held.pop(0)
        for one in sent(rig.give_back(lease, holder[lease]), do.GrantLease):
            held.append(one.lease)
            holder[one.lease] = one.process
            receivers.append(one.process[0])
    assert receivers == [2, 3, 1, 2, 3, 1]


def test_the_demand_that_holds_less_is_served_first() -> None:
    rig = two_cpus()
    rig.define(2, CPU=1)
    held = rig.want(5)
    rig.want(5, shape=2)
    done = rig.give_back(held[0][0])
    assert [one.shape for one in sent(done, do.GrantLease)] == [2]


def test_a_lease_of_who_holds_most_is_asked_back_once() -> None:
    rig = two_cpus()
    rig.define(2, CPU=1)
    held = [lease for lease, _ in rig.want(5)]
    asked = revoked(rig.feed(ev.LeaseRequested(DRIVER, 2, 5)))
    assert len(asked) == 1 and asked[0] in held
    assert not revoked(rig.feed(ev.LeaseRequested(DRIVER, 2, 6)))
    done = rig.give_back(asked[0])
    assert len(grants(done)) == 1 and not revoked(done)  # one each: even


def test_equal_shares_are_left_alone() -> None:
    rig = two_cpus()
    rig.define(2, CPU=1)
    rig.want(1)
    rig.want(5, shape=2)
    assert not revoked(rig.feed(ev.LeaseRequested(DRIVER, 1, 5)))


def test_two_demands_take_turns_on_a_single_cpu() -> None:
    rig = Rig({"CPU": 1})
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    rig.define(2, CPU=1)
    ((lease, _),) = rig.want(3)
    shape = 2
    assert revoked(rig.feed(ev.LeaseRequested(DRIVER, 2, 3))) == [lease]
    for _ in range(4):
        done = rig.give_back(lease)
        (grant,) = sent(done, do.GrantLease)
        lease = grant.lease
        assert grant.shape == shape
        assert revoked(done) == [lease]
        shape = 3 - shape
        rig.want(3, shape)


def test_a_shape_that_no_node_holds_is_refused_with_the_reason() -> None:
    rig = two_cpus()
    rig.define(3, CPU=1, GPU=2)
    (refusal,) = sent(rig.feed(ev.LeaseRequested(DRIVER, 3, 1)), do.RefuseShape)
    assert (refusal.shape, refusal.only_now) == (3, False)
    assert "task f can never be placed: 2 GPU is asked for, but the node has 0" in refusal.fault.text
    rig.define(4, GPU=1.5)
    (refusal,) = sent(rig.feed(ev.LeaseRequested(DRIVER, 4, 1)), do.RefuseShape)
    assert "whole number" in refusal.fault.text


def test_a_node_alone_may_be_told_to_keep_what_it_can_never_hold() -> None:
    rig = two_cpus()
    rig.state.standing.waits_alone = True
    rig.define(7, GPU=2)
    assert not sent(rig.feed(ev.LeaseRequested(DRIVER, 7, 1)), do.RefuseShape)
    (demand,) = [one for one in rig.state.demands.by_key.values() if one.key == (DRIVER, 7)]
    why = why_stuck(demand, rig.state.resources, rig.state.workers)
    assert "can never hold: 2 GPU is asked for, but the node has 0" in why


def test_a_blocked_worker_lends_its_cpu_to_its_children_first() -> None:
    rig = two_cpus()
    (_, parent), (_, other) = rig.want(1000)
    rig.define(7, process=parent, CPU=1)
    assert not rig.want(4, shape=7, process=parent)
    done = rig.feed(ev.WorkerBlocked(parent))
    (grant,) = sent(done, do.GrantLease)
    assert grant.process == parent
    rig.feed(ev.WorkerUnblocked(parent))
    assert rig.free() == {"CPU": -1}
    child = grant.lease
    assert not grants(rig.give_back(child, process=parent))  # only pays the debt
    assert rig.free() == {"CPU": 0}
    assert other != parent


def test_a_recursion_goes_depth_first_and_needs_few_workers() -> None:
    """A binary tree of tasks that each wait for two children, on two CPUs."""
    rig = two_cpus()
    ((_, root),) = rig.want(1)
    depth_of = {root: 1}
    open_children = {root: 2}
    most = 0
    frontier = [root]
    holder_of: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}

    def start(instructions: list[do.Instruction]) -> None:
        for one in sent(instructions, do.GrantLease):
            depth_of[one.worker] = depth_of.get(one.process, 0) + 1
            holder_of[one.worker] = (one.process, one.lease)
            frontier.append(one.worker)

    while frontier:
        worker = frontier.pop(0)
        most = max(most, sum(w.place is Place.LEASED for w in rig.state.workers))
        if depth_of[worker] < 6:
            open_children[worker] = 2
            rig.define(1, process=worker, CPU=1)
            start(rig.feed(ev.LeaseRequested(worker, 1, 2)))
            start(rig.feed(ev.WorkerBlocked(worker)))
            continue
        while worker in holder_of:  # a leaf is done; perhaps its parents are too
            parent, lease = holder_of.pop(worker)
            start(rig.feed(ev.LeaseReturned(parent, lease)))
            open_children[parent] -= 1
            if open_children[parent]:
                break
            start(rig.feed(ev.WorkerUnblocked(parent)))
            worker = parent
    assert open_children[root] == 0
    assert most <= 4 * 6, f"{most} workers at once for a tree of depth 6"


def test_a_large_demand_is_not_starved_by_small_ones() -> None:
    rig = two_cpus()
    rig.define(2, CPU=2)
    small = [lease for lease, _ in rig.want(100)]
    assert revoked(rig.feed(ev.LeaseRequested(DRIVER, 2, 1))) == small[::-1]
    assert not grants(rig.give_back(small[0]))  # kept for the large one
    rig.want(100)
    done = rig.give_back(small[1])
    assert [one.shape for one in sent(done, do.GrantLease)] == [2]


def test_a_demand_that_can_not_be_placed_yet_insists_only_for_a_while() -> None:
    rig = two_cpus()
    rig.define(2, CPU=2)
    rig.create(1, resources={"CPU": 1.0})  # holds a CPU for good
    rig.want(1, shape=2)
    assert not rig.want(1)
    for _ in range(PATIENCE_TICKS - 1):
        assert not grants(rig.feed(ev.Ticked()))
    assert rig.state.wants_ticks
    assert len(grants(rig.feed(ev.Ticked()))) == 1


def test_a_demand_short_of_one_thing_does_not_hold_back_those_that_need_another() -> None:
    rig = Rig({"CPU": 2, "disk": 1})
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    rig.define(2, disk=1)
    rig.define(3, disk=1)
    assert rig.want(1, shape=2)
    assert not rig.want(1, shape=3)
    assert rig.want(1)


def test_what_a_dead_holder_had_leased_is_killed_and_its_resources_come_back() -> None:
    rig = two_cpus()
    other = (2, 1)
    rig.join(other, job=2)
    rig.define(1, process=other, CPU=1)
    workers = {worker for _, worker in rig.want(5)}
    rig.want(2, process=other)
    assert killed(rig.die(DRIVER)) == workers
    assert rig.free() == {"CPU": 0}  # theirs until they are dead
    done = [one for worker in workers for one in rig.die(worker)]
    assert len(grants(done)) == 2
    assert [one.job for one in done if isinstance(one, do.EndJob)] == [1]


def test_the_holder_hears_of_its_workers_death_even_without_a_ring() -> None:
    rig = two_cpus()
    ((_, worker),) = rig.want(1)
    (told,) = sent(rig.die(worker), do.TellDeath)
    assert told == do.TellDeath(DRIVER, worker, f"killed by SIGKILL (pid {worker[0]})", None)
    assert rig.free() == {"CPU": 2}


def test_the_holder_hears_that_its_worker_was_stopped_for_memory_and_what_it_held() -> None:
    rig = two_cpus()
    ((_, worker),) = rig.want(1)
    (told,) = sent(rig.die(worker, memory_peak=3 << 30), do.TellDeath)
    assert (told.dead, told.memory_peak) == (worker, 3 << 30)


def test_peers_are_told_once_each() -> None:
    rig = two_cpus()
    ((_, worker),) = rig.want(1)
    told = sent(rig.die(worker, peers=(DRIVER, (9, 1))), do.TellDeath)
    assert [one.process for one in told] == [DRIVER, (9, 1)]


def test_a_lease_can_only_be_returned_by_its_holder() -> None:
    rig = two_cpus()
    ((lease, worker),) = rig.want(1)
    rig.give_back(lease, process=worker)
    assert rig.free() == {"CPU": 1}


def test_a_lease_returned_while_its_worker_still_counts_as_blocked_frees_its_cpu_once() -> None:
    rig = two_cpus()
    ((lease, worker),) = rig.want(1)
    rig.feed(ev.WorkerBlocked(worker))
    rig.give_back(lease)
    assert rig.free() == {"CPU": 2}
    rig.feed(ev.WorkerUnblocked(worker))
    assert rig.free() == {"CPU": 2}


def test_what_another_nodes_process_wants_ends_with_its_job() -> None:
    rig = Rig({"CPU": 1}, prestart=1)
    rig.feed(ev.NodeStarted())
    driver, guest = (8, 1), (9, 1)
    rig.feed(ev.JobLearnt(driver, 7, 1, None))
    rig.feed(ev.GuestJoined(guest, 7))
    rig.define(1, guest, CPU=1)
    rig.join(DRIVER, job=1)
    rig.define(1, DRIVER, CPU=1)
    ((lease, _),) = rig.want(1)
    assert rig.want(1, process=guest) == []
    rig.die(driver)
    assert not rig.state.demands.is_waiting
    assert grants(rig.give_back(lease)) == []
