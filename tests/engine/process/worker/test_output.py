"""Output of workers appears at the driver, named and once."""

from __future__ import annotations

import re

from programs import run

PRINTING = """
    import os, sys, weft

    weft.init(num_cpus=2)

    @weft.remote
    def speak(text):
        print(text)
        print("to stderr:", text, file=sys.stderr)
        return os.getpid()

    @weft.remote
    class Speaker:
        def say(self, text):
            print(text, end="")
            print("!")

    pid = weft.get(speak.remote("hello"))
    speaker = Speaker.remote()
    weft.get(speaker.say.remote("from an actor"))
    print("pid", pid)
    weft.shutdown()
"""


def test_what_tasks_print_is_shown_with_their_names() -> None:
    done = run(PRINTING)
    pid = re.search(r"^pid (\d+)$", done.stdout, re.MULTILINE)
    assert pid, done.stderr
    assert f"(speak pid={pid[1]}) hello" in done.stdout
    assert f"(speak pid={pid[1]}) to stderr: hello" in done.stderr
    assert re.search(r"^\(Speaker\.say pid=\d+\) from an actor!$", done.stdout, re.MULTILINE)


def test_output_can_be_kept_from_the_driver() -> None:
    done = run(PRINTING.replace("num_cpus=2", "num_cpus=2, log_to_driver=False"))
    assert "hello" not in done.stdout


def test_what_native_code_prints_is_shown_too() -> None:
    done = run(
        """
        import os, weft
        weft.init(num_cpus=1)
        weft.get(weft.remote(lambda: os.write(1, b"raw bytes\\n")).remote())
        weft.shutdown()
        """
    )
    assert re.search(r"^\(.*pid=\d+\) raw bytes$", done.stdout, re.MULTILINE), (done.stdout, done.stderr)


def test_why_a_shutdown_hook_failed_is_shown() -> None:
    done = run(
        """
        import os, psutil, weft
        weft.init(num_cpus=1)

        @weft.remote
        class Ends:
            def pid(self):
                return os.getpid()
            def __ray_shutdown__(self):
                raise RuntimeError("the hook's own mistake")

        actor = Ends.remote()
        process = psutil.Process(weft.get(actor.pid.remote()))
        del actor
        psutil.wait_procs([process], timeout=60)
        weft.shutdown()
        """
    )
    assert "RuntimeError: the hook's own mistake" in done.stderr, (done.stdout, done.stderr)
