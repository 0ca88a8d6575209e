"""Drivers to be killed, and a sweep of seconds for them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DRIVER = """
import json, os, resource, signal, sys
from pathlib import Path
import torch
from synthbench.errors import SynthbenchError
from synthbench.runner.request import Request
from synthbench.runner.run import run

torch.set_num_threads(1)

def request_of(fields):
    return Request(**{"executor": "inline", "device": "cpu", **fields, "results": Path(fields["results"])})

def say(*words):
    print(*words, file=sys.stderr, flush=True)

def drive(asked):
    with open(asked["log"], "a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdin.close()
    signal.alarm(240)
    code = 0
    try:
        exec(asked["fault"], globals())
        run(request_of(asked["fields"]), on_plan=lambda *_: say("begun"), on_outcome=lambda row: say("row", row.status))
    except SynthbenchError as problem:
        code = problem.exit_code
        say(problem)
    except BaseException:
        code = 70
        import traceback
        traceback.print_exc()
    os._exit(code)

run(request_of(json.loads(sys.stdin.readline())["fields"]))  # what is found out once, every child knows
print("ready", flush=True)
for line in sys.stdin:
    asked, children = json.loads(line), []
    for _ in range(asked["times"]):
        children.append(os.fork())
        if not children[-1]:
            drive(asked)
    print(children[0], flush=True)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(max(codes, key=abs), flush=True)
"""


class Driver:
    """A process that runs requests in children of its own, which begin at once: everything is imported already."""

    def __init__(self, scratch: Path, first: dict[str, Any]) -> None:
        self._scratch, self._number, self._under_way = scratch, 0, False
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._ask(first, "", 1)
        self._answer()

    def begin(self, request: dict[str, Any], fault: str = "", times: int = 1) -> int:
        """Run a request in a child, or several at once, after a piece of Python; the first child's process id."""
        self._ask(request, fault, times)
        self._under_way = True
        return int(self._answer())

    def ended(self) -> int:
        """Wait for the children; 0, or the exit code of one that failed, less than 0 if a signal ended it."""
        self._under_way = False
        return int(self._answer())

    def run(self, request: dict[str, Any], fault: str = "", times: int = 1) -> int:
        """Both."""
        self.begin(request, fault, times)
        return self.ended()

    @property
    def said(self) -> str:
        """Output of the latest children."""
        return (self._scratch / f"{self._number}.log").read_text(encoding="utf-8")

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _ask(self, request: dict[str, Any], fault: str, times: int) -> None:
        if self._under_way:  # a test that failed amid a run has not waited for its end
            self.ended()
        self._number += 1
        log = os.fspath(self._scratch / f"{self._number}.log")
        Path(log).touch()
        assert self._process.stdin is not None
        asked = {"fields": request, "fault": fault, "times": times, "log": log}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the driver is gone"
        return answer


def fields(results: Path, **changes: Any) -> dict[str, Any]:
    """Fields of a request for 12 rows, each by itself; any can be changed."""
    base: dict[str, Any] = {
        "suite": "smoke", "tasks": ["copy:length=8", "majority:length=8"], "mechanisms": ["linear", "softmax"],
        "seeds": list(range(3)), "steps": 40, "limit": 32, "group_size": 1, "results": os.fspath(results),
    }  # fmt: skip
    return base | changes
