"""gloo's all-reduce for train_collectives.py: forks MEMBERS processes; each prints a line of its times as JSON.

python benchmarks/gloo_member.py MEMBERS '{"4096": 200}'
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time


def member(rank: int, members: int, plan: dict[str, int], meeting_file: str, answers: multiprocessing.Queue) -> None:
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{meeting_file}", rank=rank, world_size=members)
    found: dict[str, list[float]] = {}
    for size, repetitions in plan.items():
        tensor = torch.ones(int(size) // 4)
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        found[size] = []
        for _ in range(repetitions):
            torch.distributed.barrier()
            started = time.perf_counter()
            torch.distributed.all_reduce(tensor)
            found[size].append(time.perf_counter() - started)
            tensor.fill_(1.0)
    answers.put(found)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> None:
    members, plan = int(sys.argv[1]), json.loads(sys.argv[2])
    answers: multiprocessing.Queue = multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            multiprocessing.Process(target=member, args=(rank, members, plan, f"{folder}/meeting", answers))
            for rank in range(members)
        ]
        for process in processes:
            process.start()
        for _ in processes:
            print(json.dumps(answers.get()))
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
