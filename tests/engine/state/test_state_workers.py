"""How many workers are kept, which one gets the work, which are ended."""

from __future__ import annotations

from node_rig import DRIVER, Rig, grants, killed, sent, two_cpus

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.stuck import WARN_AFTER_TICKS
from weft.engine.state.workers import CRASHES_IN_A_ROW, SPARE, Place, how_ended
from weft.engine.wire.kinds import ErrorCode
from weft.engine.wire.messages import ExitProcess


def forks(instructions: list[do.Instruction]) -> int:
    return sum(isinstance(one, do.ForkWorker) for one in instructions)


def idle(rig: Rig, bound: bool) -> int:
    return sum(w.place is Place.IDLE and (w.binding is not None) == bound for w in rig.state.workers)


def test_a_node_starts_with_a_worker_a_cpu_and_keeps_spares_once_used() -> None:
    rig = Rig(prestart=2)
    assert forks(rig.feed(ev.NodeStarted())) == 2
    rig.join()
    rig.define(1, CPU=1)
    leases = rig.want(2)
    assert idle(rig, bound=False) == SPARE
    for lease, _ in leases:
        rig.give_back(lease)
    assert (idle(rig, bound=True), idle(rig, bound=False)) == (2, SPARE)
    assert not rig.state.wants_ticks


def test_no_more_than_the_limit_are_on_their_way_at_once() -> None:
    rig = Rig({"CPU": 100}, prestart=1, start_limit=4, forks_at_once=False)
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    leases = rig.want(50)
    assert len(leases) == 4
    assert len(grants(rig.feed(ev.WorkerForked(leases[0][1], 7)))) == 1


def test_an_attached_unbound_worker_is_preferred_to_one_on_its_way() -> None:
    rig = two_cpus(forks_at_once=False)
    workers = [worker.process for worker in rig.state.workers]
    rig.feed(ev.WorkerForked(workers[1], 7))
    assert rig.want(1)[0][1] == workers[1]


def test_workers_are_not_shared_between_jobs_or_environments_or_thread_counts() -> None:
    rig = two_cpus()
    other = (2, 1)
    rig.join(other, job=2)
    rig.define(1, process=other, CPU=1)
    rig.define(2, runtime_env='{"env_vars":{"A":"1"}}', CPU=1)
    rig.define(3, CPU=2)
    rig.define(4, CPU=0.5)
    used = []
    for process, shape in ((DRIVER, 1), (other, 1), (DRIVER, 2), (DRIVER, 3)):
        ((lease, worker),) = rig.want(1, shape, process)
        rig.give_back(lease, process)
        used.append(worker)
    assert len(set(used)) == 4
    assert rig.want(1, 4)[0][1] == used[0]  # less than a CPU is one thread too


def test_excess_idle_workers_are_asked_to_end_after_a_while() -> None:
    rig = Rig({"CPU": 10}, prestart=1)
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    for lease, _ in rig.want(6):
        rig.give_back(lease)
    assert rig.state.wants_ticks
    assert not [one for one in rig.feed(ev.Ticked()) if isinstance(one, do.SendMessage)]
    ended = [one for one in rig.feed(ev.Ticked()) if isinstance(one, do.SendMessage)]
    assert all(isinstance(one.message, ExitProcess) and one.message.drain for one in ended)
    assert idle(rig, bound=True) + idle(rig, bound=False) == 1 + SPARE
    assert not rig.state.wants_ticks


def test_an_idle_worker_whose_objects_others_hold_is_kept_until_they_let_go() -> None:
    rig = Rig({"CPU": 10}, prestart=1)
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    leases = rig.want(6)
    for lease, worker in leases:
        rig.feed(ev.WorkerLent(worker, True))
        rig.give_back(lease)
    for _ in range(5):
        assert not [one for one in rig.feed(ev.Ticked()) if isinstance(one, do.SendMessage)]
    rig.feed(ev.WorkerLent(leases[3][1], False))
    ended = [one.process for one in rig.feed(ev.Ticked()) if isinstance(one, do.SendMessage)]
    assert ended == [leases[3][1]]


def test_an_idle_worker_that_owns_a_living_actor_is_not_ended() -> None:
    rig = Rig({"CPU": 10}, prestart=1)
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, CPU=1)
    leases = rig.want(6)
    for number, (_, worker) in enumerate(leases):
        rig.create(number, process=worker)
    for lease, _ in leases:
        rig.give_back(lease)
    for _ in range(4):
        rig.feed(ev.Ticked())
    assert idle(rig, bound=True) == 6


def test_gpu_workers_keep_to_their_devices_and_do_not_linger() -> None:
    rig = Rig({"CPU": 4, "GPU": 2}, gpu_ids=(0, 1), prestart=2)
    rig.feed(ev.NodeStarted())
    rig.join()
    rig.define(1, GPU=1)
    rig.define(2, GPU=2)
    done = rig.feed(ev.LeaseRequested(DRIVER, 1, 1))
    assert [one.binding.gpu_ids for one in done if isinstance(one, do.BindWorker)] == [[0]]
    ((lease, first),) = grants(done)
    rig.give_back(lease)
    ((lease, again),) = rig.want(1)
    assert again == first
    rig.give_back(lease)
    done = rig.feed(ev.LeaseRequested(DRIVER, 2, 1))
    messages = [one for one in done if isinstance(one, do.SendMessage)]
    assert [one.process for one in messages if isinstance(one.message, ExitProcess)] == [first]
    assert [one.binding.gpu_ids for one in done if isinstance(one, do.BindWorker)] == [[0, 1]]
    rig.give_back(grants(done)[0][0])
    rig.feed(ev.Ticked())
    assert [one for one in rig.feed(ev.Ticked()) if isinstance(one, do.SendMessage)]


def test_when_all_slots_are_used_forking_waits_for_one_to_come_back() -> None:
    rig = two_cpus()
    rig.slots_left = 0
    leases = rig.want(2)
    assert len(leases) == 2
    rig.die(leases[0][1])
    assert forks(rig.feed(ev.Ticked())) == 0
    rig.slots_left = 5
    assert forks(rig.feed(ev.SlotReleased())) > 0


def full_of_actors(tasks: int = 0) -> Rig:
    """All slots are in use: by two actors, or by an actor and a task; and a third actor waits."""
    rig = two_cpus()
    rig.slots_left = 0
    for number in range(2 - tasks):
        rig.create(number, placement_resources={})
    assert len(rig.want(tasks)) == tasks
    rig.create(9, placement_resources={})
    return rig


def refused(done: list[do.Instruction]) -> list[do.Fault]:
    return [one.cause for one in sent(done, do.TellActorDown) if isinstance(one.cause, do.Fault)]


def ticks(rig: Rig, count: int) -> list[do.Instruction]:
    return [one for _ in range(count) for one in rig.feed(ev.Ticked())]


def test_an_actor_fails_when_no_process_has_ended_for_long_on_a_node_that_is_full_of_actors() -> None:
    rig = full_of_actors()
    assert not refused(ticks(rig, WARN_AFTER_TICKS - 1))
    [fault] = refused(ticks(rig, 1))
    assert fault.code == ErrorCode.ACTOR_UNSCHEDULABLE and fault.text.startswith("actor Counter")
    assert "2 are living actors" in fault.text and "WEFT_MAX_PROCESSES" in fault.text
    assert not rig.state.demands.is_waiting
    rig.create(10, placement_resources={})
    assert len(refused(ticks(rig, 1))) == 1, "nothing has changed: the next one need not wait as long"


def test_a_process_that_ends_gives_waiting_actors_their_time_again() -> None:
    rig = full_of_actors()
    ticks(rig, WARN_AFTER_TICKS - 1)
    rig.feed(ev.SlotReleased())
    assert not refused(ticks(rig, WARN_AFTER_TICKS - 1))
    assert len(refused(ticks(rig, 1))) == 1


def test_an_actor_waits_for_a_task_to_end_but_not_for_one_that_waits_itself() -> None:
    rig = full_of_actors(tasks=1)
    assert not refused(ticks(rig, 3 * WARN_AFTER_TICKS))
    [task] = [worker for worker in rig.state.workers if worker.place is Place.LEASED]
    rig.feed(ev.WorkerBlocked(task.process))
    [fault] = refused(ticks(rig, 1))
    assert "1 are living actors, 1 run tasks that wait" in fault.text


def test_idle_workers_that_fit_nobody_who_waits_end_when_all_slots_are_used() -> None:
    rig = two_cpus()
    ((lease, worker),) = rig.want(1)
    rig.give_back(lease)
    rig.slots_left = 0
    rig.join((2, 1), job=2)
    rig.create(1, process=(2, 1), placement_resources={})
    rig.create(2, process=(2, 1), placement_resources={})
    ended = [one.process for one in ticks(rig, 2) if isinstance(one, do.SendMessage)]
    assert worker in ended


def test_workers_that_cannot_start_stop_the_node_instead_of_looping() -> None:
    rig = two_cpus()
    stops: list[do.Instruction] = []
    for _ in range(CRASHES_IN_A_ROW):
        unbound = next(w for w in rig.state.workers if w.binding is None)
        done = rig.feed(ev.ProcessDied(unbound.process, "exited with status 1 (pid 5)", status=1))
        stops += [one for one in done if isinstance(one, do.StopNode)]
    assert len(stops) == 1 and "exited with status 1 (pid 5)" in stops[0].error  # type: ignore[attr-defined]


def test_idle_workers_that_people_kill_do_not_stop_the_node() -> None:
    rig = two_cpus()
    for _ in range(3 * CRASHES_IN_A_ROW):
        done = rig.die(next(w for w in rig.state.workers if w.binding is None).process)
        assert not [one for one in done if isinstance(one, do.StopNode)]
    assert idle(rig, bound=False) == 2


def test_the_idle_workers_of_a_job_die_with_its_driver() -> None:
    rig = two_cpus()
    ((lease, worker),) = rig.want(1)
    rig.give_back(lease)
    done = rig.die(DRIVER)
    assert killed(done) == {worker}
    assert not [one for one in done if isinstance(one, do.EndJob | do.StopNode)]
    assert [one for one in rig.die(worker) if isinstance(one, do.EndJob)]


def test_the_node_ends_with_its_founder() -> None:
    rig = Rig()
    rig.join(founder=True)
    assert do.StopNode() in rig.die(DRIVER)


def test_exit_statuses_in_words() -> None:
    assert [how_ended(status) for status in (0, 3, -9, -11, -63)] == [
        "exited with status 0", "exited with status 3", "killed by SIGKILL", "killed by SIGSEGV", "killed by signal 63",
    ]  # fmt: skip
