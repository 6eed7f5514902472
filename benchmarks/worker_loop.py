"""What every contender does around its step; imports nothing that a peer may lack."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

BEGIN = time.perf_counter()


def read_job() -> dict[str, Any]:
    """The job that this program was started with."""
    return json.loads(sys.argv[1])


def megabytes() -> int:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


IMPORTED = megabytes()  # contenders import their libraries before this file


def serve(step: Callable[[int], Any], **facts: Any) -> None:
    """Takes a first step, says so, and then as many as standard input asks for.

    Args:
        step: computes batch number n, counted round and round, and waits for its result.
        facts: go into the answer.
    """
    step(0)
    first = time.perf_counter() - BEGIN
    facts |= {"start_seconds": round(first, 1), "imported_megabytes": IMPORTED}
    print(json.dumps(facts), flush=True)
    number = 0
    for line in sys.stdin:
        steps = []
        for _ in range(int(line)):
            begin, cpu = time.perf_counter(), time.process_time()
            step(number)
            steps.append({"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu})
            number += 1
        print(json.dumps({"steps": steps}), flush=True)
    print(json.dumps({"peak_megabytes": megabytes()}), flush=True)
