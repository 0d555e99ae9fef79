"""Memory that ends is a `MemoryError` where it ends, of whoever asked for it; no process is aborted."""

from __future__ import annotations

from tests import programs

LIMITED = """
    import contextlib, resource
    import numpy as np
    import weft

    NO_LIMIT = resource.RLIM_INFINITY

    TEXT = "x" * 60_000  # below what lies in the arena

    def limit(mib):
        "No more than so much in addition to what there is."
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20), NO_LIMIT))

    @contextlib.contextmanager
    def limited(mib):
        limit(mib)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (NO_LIMIT, NO_LIMIT))

    @weft.remote(max_retries=0)
    def count(*texts):
        return len(texts)

    @weft.remote
    class Counter:
        def __init__(self, *texts):
            self.count = len(texts)
        def get(self):
            return self.count

    weft.init(num_cpus=1, log_to_driver=False)
    assert weft.get(count.remote(TEXT)) == 1
"""


def run(program: str) -> str:
    done = programs.run(LIMITED + program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_call_whose_record_finds_no_memory_raises_and_the_next_one_is_made() -> None:
    run("""
    for call in (count.remote, Counter.remote):
        try:
            with limited(100):
                call(*[TEXT] * 4000)
        except MemoryError:
            pass
        else:
            raise AssertionError("there was memory")
    assert weft.get(count.remote(TEXT, TEXT)) == 2
    assert weft.get(Counter.remote(TEXT).get.remote()) == 1
    """)


def test_results_that_find_no_memory_are_the_tasks_error() -> None:
    run("""
    from weft.exceptions import TaskError

    @weft.remote(num_returns=4000, max_retries=0)
    def many():
        limit(100)
        return (TEXT,) * 4000

    try:
        weft.get(many.remote())
    except TaskError as error:
        assert isinstance(error.cause, MemoryError), error
    else:
        raise AssertionError("there was memory")
    """)


def test_a_large_value_is_copied_by_one_thread_where_no_other_can_be_made() -> None:
    run("""
    array = np.arange(4 << 20)
    with limited(1):
        ref = weft.put(array)
    assert (weft.get(ref) == array).all()
    """)


def test_a_call_that_finds_no_memory_where_it_arrives_ends_in_an_error_and_the_worker_goes_on() -> None:
    """What finds none is the record, put together of its parts, its copy, or the arguments themselves."""
    run("""
    from weft.exceptions import SystemFailureError, TaskError

    @weft.remote
    class Limited:
        def limit(self, mib):
            limit(mib)
        def count(self, *texts):
            return len(texts)

    actor = Limited.remote()
    weft.get(actor.limit.remote(100))
    for texts in (500, 900, 1400, 4000):
        try:
            assert weft.get(actor.count.remote(*[TEXT] * texts), timeout=120) == texts
        except (SystemFailureError, TaskError) as error:
            assert "memory" in str(error).lower(), error
        else:
            assert texts < 4000
    assert weft.get(actor.count.remote(TEXT)) == 1
    """)
