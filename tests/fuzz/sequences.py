"""Random sequences of passes over random graphs: each pass gives a well-formed graph of the same meaning."""

from __future__ import annotations

import traceback
from functools import cache

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from microfold.errors import MicrofoldError
from microfold.ir.graph import Graph, verify
from microfold.ir.text import parse, to_text
from microfold.passes.kinds import Pass
from microfold.pipeline import default_pipeline
from microfold.transform import available
from tests.evaluation import assert_same_meaning
from tests.fuzz.engine import Case, Fault, Random
from tests.random_graphs import graphs

# Float sums are added up in another order where a grouped convolution becomes a depthwise one.
TOLERANCE = 1e-5
EXAMPLES = 20  # of a case: hypothesis needs some to vary
LONGEST = 12
SECONDS = 5  # for one graph, shrinking included


@cache
def passes() -> dict[str, Pass]:
    found = {name: item if isinstance(item, Pass) else item() for name, item in available().items()}
    return found | {"default": default_pipeline()}


def check_sequence(graph: Graph, names: list[str]) -> None:
    """Run the passes; every result must be well-formed, the last one must mean the same.

    Raises:
        Fault: it does not.
    """
    result, before = graph, to_text(graph)
    for name in names:
        try:
            after = passes()[name](result)
            verify(after)
        except MicrofoldError as error:
            raise Fault(f"{name} fails: {error}") from error
        if to_text(parse(to_text(after))) != to_text(after):
            raise Fault(f"the text form after {name} is read as something else")
        result = after
    if to_text(graph) != before:
        raise Fault("a pass changed its input")
    try:
        assert_same_meaning(graph, result, calls=2, tolerance=TOLERANCE, may_cancel=True)
    except AssertionError as error:
        raise Fault(f"the meaning changed\n{error}") from error


def written(graph: Graph, names: list[str]) -> str:
    return f"// passes: {', '.join(names)}\n{to_text(graph)}"


class Sequences:
    """Cases are seeds: hypothesis draws the graphs and makes failures small."""

    suffix = ".passes"
    seconds = EXAMPLES * SECONDS

    def draw(self, rng: Random) -> Case:
        return Case("seed", (int(rng.integers(1 << 62)),))

    def payload(self, case: Case) -> bytes:
        return f"{case.base} {case.edits[0]}".encode()

    def check(self, payload: bytes) -> str:
        """A seed, or a list of passes and a graph as `written`."""
        text = payload.decode()
        if text.startswith("seed"):
            search(int(text.split()[1]), EXAMPLES)
            return f"{EXAMPLES} sequences"
        head, _, body = text.partition("\n")
        check_sequence(parse(body), [name.strip() for name in head.partition(":")[2].split(",")])
        return "a sequence"


def search(seed: int, examples: int) -> None:
    """Let hypothesis look for a failure.

    Raises:
        Fault: it has found one.
    """
    last = ""

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(
        graph=graphs(),
        names=st.lists(st.sampled_from(sorted(passes())), min_size=1, max_size=LONGEST),
    )
    def run(graph: Graph, names: list[str]) -> None:
        nonlocal last
        text = written(graph, names)
        try:
            check_sequence(graph, names)
        except Exception:
            last = text  # the last failure that is tried is the smallest
            raise

    try:
        run()
    except Fault as fault:
        raise Fault(str(fault), last.encode()) from fault
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {where.name}\n{error}"
        raise Fault(text, last.encode()) from error
