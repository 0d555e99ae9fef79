"""The script that another interpreter runs to be a worker; `launch` executes it.

    PYTHON launched.py PACKAGE_FOLDER                                     only look whether it can be one
    PYTHON launched.py PACKAGE_FOLDER INSTALLED BINDING_FD SEGMENT_FD EVENT_FD SLOT GENERATION

Words without spaces only: between `launch` and here there may be a shell script that does not quote.
"""

import sys

if sys.path[:1] == [__file__.rpartition("/")[0]]:
    del sys.path[0]  # the folder of this script, whose modules have common names
sys.path.append(sys.argv[1])


def main() -> int:
    import os

    from weft.engine.node import zygote
    from weft.engine.process.worker import main as worker

    if len(sys.argv) == 2:
        return 0
    zygote.die_with_parent(os.getppid())  # a wrapper's death is ours
    import msgspec

    from weft.engine.wire.messages import BindJob
    from weft.environments.installed import Installed

    packages = None if sys.argv[2] == "-" else Installed(sys.argv[2])
    binding_fd, segment_fd, event_fd, slot, generation = map(int, sys.argv[3:8])
    job = msgspec.msgpack.decode(os.pread(binding_fd, os.fstat(binding_fd).st_size, 0), type=BindJob)
    os.close(binding_fd)
    for fd in (segment_fd, event_fd):
        os.set_inheritable(fd, False)
    zygote.set_process_name("weft-worker")
    sys.argv[:] = [""]
    status = worker.main(
        segment_fd, event_fd, slot, generation, worker.Birth(job, packages=packages, variables=dict(os.environ))
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    sys.exit(main())
