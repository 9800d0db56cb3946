"""Runs a fuzzer: draws cases, checks each in a process with limits, makes failures small and keeps them.

A fuzzer's promise: what it draws is compiled, rightly, or refused by one `MicrofoldError` with a message. No
other exception, no hang, no flood of memory.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from microfold.errors import GraphError, MicrofoldError

Random = np.random.Generator
MEMORY_BYTES = 3 << 30  # of addresses; numpy and its threads take some 300 MB to begin with
LONGEST_MESSAGE = 1 << 20


class Case(Struct, frozen=True):
    """What a fuzzer has drawn.

    Attributes:
        base: what is changed, e.g. a model's name.
        edits: the changes; each is one without the others, too.
    """

    base: str
    edits: tuple[Any, ...]


class Fuzzer(Protocol):
    """One kind of input.

    Attributes:
        suffix: of files that hold a payload.
        seconds: that a case may take.
    """

    suffix: str
    seconds: int

    def draw(self, rng: Random) -> Case:
        """A random case."""
        ...

    def payload(self, case: Case) -> bytes:
        """The input that a case stands for."""
        ...

    def check(self, payload: bytes) -> str:
        """What the promise is kept by: ``compiled`` or the like.

        Raises:
            MicrofoldError: the input is refused.
            Fault: something is wrong.
        """
        ...


class Fault(Exception):
    """A broken promise.

    Attributes:
        payload: what breaks it, if it is smaller than what was checked.
    """

    def __init__(self, text: str, payload: bytes = b""):
        super().__init__(text)
        self.payload = payload


class _Timeout(BaseException):
    """Not an `Exception`, so that nothing on the way can swallow it."""


@contextmanager
def limits(seconds: int) -> Iterator[None]:
    """Limits of time and memory for what runs inside."""

    def expire(_signal: int, _frame: object) -> None:
        raise _Timeout

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def unlimited() -> None:
    """For programs started from within `limits`: sanitizers map more addresses than there is memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


class Outcome(Struct, frozen=True):
    """What a check came to.

    Attributes:
        kind: ``compiled`` …, ``refused``, or ``fault``.
        text: of a fault; its first line tells it from others.
        payload: as in `Fault`.
    """

    kind: str
    text: str = ""
    payload: bytes = b""


def judge(fuzzer: Fuzzer, payload: bytes) -> Outcome:
    """Check one input within limits."""
    try:
        with limits(fuzzer.seconds):
            return Outcome(fuzzer.check(payload))
    except GraphError as error:
        return Outcome("fault", f"GraphError, which is for passes alone: {error}")
    except MicrofoldError as error:
        if not str(error).strip() or len(str(error)) > LONGEST_MESSAGE:
            return Outcome("fault", f"a message of {len(str(error))} characters: {type(error).__name__}")
        return Outcome("refused")
    except Fault as fault:
        return Outcome("fault", str(fault), fault.payload)
    except _Timeout:
        return Outcome("fault", f"longer than {fuzzer.seconds} s")
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(last.filename).name}:{last.name}"
        return Outcome("fault", f"{where}\n{''.join(traceback.format_exception(error)[-6:])}")


def drawn(fuzzer: Fuzzer, seed: int, index: int) -> Case:
    """The same case for the same numbers."""
    return fuzzer.draw(np.random.default_rng([seed, index]))


def minimise(fuzzer: Fuzzer, case: Case, first_line: str) -> Case:
    """Leave out edits as long as the fault stays the same."""
    changed = True
    while changed and len(case.edits) > 1:
        changed = False
        for index in range(len(case.edits)):
            less = Case(case.base, case.edits[:index] + case.edits[index + 1 :])
            if judge(fuzzer, fuzzer.payload(less)).text.partition("\n")[0] == first_line:
                case, changed = less, True
                break
    return case


def work(
    make: Callable[[], Fuzzer], seed: int, indices: Sequence[int], until: float, channel: Connection
) -> None:
    """A worker process: checks cases until the time is up."""
    os.environ["OMP_NUM_THREADS"] = "1"
    np.seterr(all="ignore")
    fuzzer = make()
    for index in range(*indices):
        if time.time() > until:
            break
        channel.send(("begin", index))
        case = drawn(fuzzer, seed, index)
        payload = fuzzer.payload(case)
        outcome = judge(fuzzer, payload)
        if outcome.kind == "fault":
            channel.send(("small", index))
            small = minimise(fuzzer, case, outcome.text.partition("\n")[0])
            payload = outcome.payload or fuzzer.payload(small)
        channel.send(("end", index, outcome, payload if outcome.kind == "fault" else b""))


@dataclass
class _Worker:
    process: Any
    channel: Connection
    index: int
    since: float = field(default_factory=time.time)


@dataclass
class Session:
    """A run of a fuzzer.

    Attributes:
        make: makes the fuzzer in a worker.
        folder: where failures are saved.
    """

    make: Callable[[], Fuzzer]
    seed: int
    jobs: int
    seconds: float
    folder: Path
    count: int = 1 << 40
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, Path] = field(default_factory=dict)
    report: Callable[[str], None] = print

    def run(self) -> int:
        """Until the time is up; how many different faults there were."""
        context = multiprocessing.get_context("spawn")
        fuzzer, until = self.make(), time.time() + self.seconds
        shown = time.time()

        def start(index: int) -> _Worker:
            ours, theirs = context.Pipe()
            indices = (index, self.count, self.jobs)
            process = context.Process(target=work, args=(self.make, self.seed, indices, until, theirs))
            process.start()
            theirs.close()
            return _Worker(process, ours, index)

        workers = [start(index) for index in range(self.jobs)]
        while workers:
            for channel in wait([w.channel for w in workers], timeout=1.0):
                worker = next(w for w in workers if w.channel is channel)
                try:
                    what, index, *rest = worker.channel.recv()
                except (EOFError, ConnectionResetError):
                    workers.remove(worker)
                    worker.process.join()
                    if worker.process.exitcode:
                        self._note(fuzzer, worker.index, f"died with {worker.process.exitcode}")
                        workers.append(start(worker.index + self.jobs))
                    continue
                worker.index, worker.since = index, time.time()
                if what == "end":
                    outcome, payload = rest
                    self.outcomes[outcome.kind] += 1
                    if outcome.kind == "fault":
                        self._keep(fuzzer, outcome.text, payload)
            for worker in list(workers):
                # The alarm does not reach what hangs in C.
                if time.time() - worker.since > 20 * fuzzer.seconds:
                    worker.process.kill()
                    worker.process.join()
                    workers.remove(worker)
                    self._note(fuzzer, worker.index, "hangs in C")
                    workers.append(start(worker.index + self.jobs))
            if time.time() - shown > 30:
                shown = time.time()
                self.report(self.summary())
        return len(self.faults)

    def summary(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.outcomes.items()))
        return f"{sum(self.outcomes.values())} cases: {counts}; {len(self.faults)} different faults"

    def _note(self, fuzzer: Fuzzer, index: int, text: str) -> None:
        self.outcomes["fault"] += 1
        self._keep(fuzzer, text, fuzzer.payload(drawn(fuzzer, self.seed, index)))

    def _keep(self, fuzzer: Fuzzer, text: str, payload: bytes) -> None:
        first = text.partition("\n")[0]
        if first in self.faults:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"fault_{self.seed}_{len(self.faults)}{fuzzer.suffix}"
        self.faults[first] = path
        path.write_bytes(payload)
        path.with_suffix(path.suffix + ".txt").write_text(text, encoding="utf-8")
        self.report(f"fault: {path.name} ({len(payload)} bytes): {text[:1500]}")
