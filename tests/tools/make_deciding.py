"""Writes `tests/ops/deciding.json`: cases in which float32 steps on the way to a multiplier would show.

Run from the root of the repository, with the `oracle` extra installed:
``python -m tests.tools.make_deciding``.
It prints how many of the deciding values agree with double, a float32 product, and float32 throughout.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import numpy as np
from msgspec.structs import replace

from microfold.arithmetic import numerics
from microfold.errors import MicrofoldError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.ops import deciding
from tests.ops.deciding import KINDS, Array, Case

CASES = 3  # of each kind
VALUES = 2  # of each operand of a case
SECONDS = 60.0  # of search for each kind


def float_product(factors: Sequence[float], divisor: float = 1.0) -> float:
    """The product rounded to float32, the quotient not."""
    return float(np.prod(np.array(factors, np.float32), dtype=np.float32)) / float(divisor)


def all_float(factors: Sequence[float], divisor: float = 1.0) -> float:
    """Both rounded to float32."""
    return float(np.float32(float_product(factors)) / np.float32(divisor))


Way = Callable[[Sequence[float], float], float]
WAYS: dict[str, Way] = {
    "double": numerics.effective_scale,
    "float32 product": float_product,
    "float32": all_float,
}


REDUCED = [
    f"{name} int16"
    for name in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL")
]


def evaluate(case: Case) -> dict[str, Array]:
    """The operator's result with the scale computed in each way, flat."""
    data, inputs = deciding.model([case])
    interpreter = Interpreter(import_model(data))
    results: dict[str, Array] = {}
    for way, function in WAYS.items():
        interpreter.reset()

        def divided(scale: float, divisor: float, function: Way = function) -> numerics.Multiplier:
            return numerics.quantize_multiplier(function([scale], divisor))

        with (
            mock.patch.multiple(numerics, effective_scale=function, litert_multiplier=divided),
            np.errstate(all="ignore"),
        ):
            results[way] = interpreter.run(*inputs)[0].reshape(-1)
    return results


RATIOS = [f"{name} int8" for name in ("ABS", "RELU", "RELU6", "QUANTIZE", "MEAN", "SUM", "LEAKY_RELU")]


def differing(results: dict[str, Array]) -> Array:
    """Where the ways do not agree."""
    return np.any([result != results["double"] for result in results.values()], axis=0)


def hopeless(case: Case) -> bool:
    """Whether all ways give the same, where that is likely and soon found.

    Either the multiplier is reduced to 16 bits; or it meets so few numbers that no product is near a half.
    """
    scale = case.scales
    if case.kind in RATIOS:
        exact, rounded = (way([scale[0]], scale[1]) for way in (numerics.effective_scale, all_float))
        products = np.arange(1, 512) * exact
        return not bool((np.abs(products % 1 - 0.5) < 2 * np.abs(products * (rounded / exact - 1))).any())
    if case.kind.startswith("HARD_SWISH"):
        steps = [([scale[0], 1 / 128], scale[1]), ([scale[0], 1 / 128], 3 / 32768)]
    elif case.kind in REDUCED:
        steps = [(scale[:2], scale[2])]
    else:
        return False
    return all(
        len({(numerics.quantize_multiplier(f(*s)).mantissa + (1 << 15)) >> 16 for f in WAYS.values()}) == 1
        for s in steps
    )


def operand(rng: np.random.Generator, dtype: str, count: int) -> tuple[int, ...]:
    """Many values of a type."""
    info = np.iinfo(dtype)
    if dtype == "i1" and count >= 256:
        return tuple(range(info.min, info.max + 1))
    return tuple(int(v) for v in rng.integers(info.min, info.max + 1, count))


def drawn(rng: np.random.Generator, name: str) -> Case:
    """Random scales and zero points, all values that there are or many of them."""
    kind = KINDS[name]
    wide = kind.dtype == "i2"
    first = operand(rng, kind.dtype, 4096 if wide and not kind.second else 64 if wide else 256)
    second = operand(rng, kind.second, 64 if wide else 256) if kind.second else (0,)
    if name in ("MEAN int8", "SUM int8"):
        second = (-128, 0, 127)  # sums are few
    zero_points = [0 if wide else int(v) for v in rng.integers(-100, 101, 3)]
    fixed = deciding.FIXED_ZERO_POINTS.get(name.split()[0])
    if fixed is not None:
        zero_points[2] = 0 if wide else fixed
    if name.endswith("to int8"):
        zero_points[2] = int(rng.integers(-100, 101))
    if name.endswith("to int16"):
        zero_points[2] = 0
    if name.startswith("RSQRT"):
        zero_points[0] = 0 if wide else -128
        first = tuple(v for v in first if v > zero_points[0])
    alpha = float(np.float32(rng.uniform(0.1, 0.9)))
    return Case(name, kind.scales(rng, kind.dtype), tuple(zero_points), first, second, alpha)


def found(name: str, seconds: float, seed: int = 0) -> Iterator[Case]:
    """Cases with a few values each, of which at least one decides."""
    rng = np.random.default_rng([seed, *name.encode()])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        case = drawn(rng, name)
        if hopeless(case):
            continue
        try:
            results = evaluate(case)
        except MicrofoldError as error:
            raise SystemExit(f"{name}: {error}") from None
        # Results of pairs have a last axis of their own.
        differ = differing(results).reshape(len(case.first) * len(case.second), -1).any(axis=1)
        chosen = np.flatnonzero(differ)[:VALUES]
        if chosen.size:
            rows, columns = np.divmod(chosen, len(case.second))
            first = tuple(case.first[i] for i in rows)
            yield replace(case, first=first, second=tuple(case.second[i] for i in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of search for each kind")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--dry", action="store_true", help="only print")
    arguments = parser.parse_args()
    recorded: list[Case] = []
    for name in arguments.kinds:
        cases: list[Case] = []
        votes: dict[str, Counter[str]] = {"tflm": Counter(), "litert": Counter()}
        for case in found(name, arguments.seconds):
            data, inputs = deciding.model([case])
            results = evaluate(case)
            differ = differing(results)
            for wheel, run in (("tflm", oracle.tflm), ("litert", oracle.litert)):
                try:
                    (given,) = run(data, [inputs], wanted := oracle.operator_outputs(data))
                except oracle.OracleError as error:
                    votes[wheel][str(error)] += 1
                    continue
                given_flat = given[wanted[0]].reshape(-1)
                votes[wheel]["of"] += int(differ.sum())
                for way, result in results.items():
                    votes[wheel][way] += int((result == given_flat)[differ].sum())
                if wheel == deciding.decides(name):
                    cases.append(replace(case, expected=tuple(int(v) for v in given_flat)))
            if len(cases) >= arguments.cases:
                break
        print(f"{name}: {len(cases)} cases; { ({k: dict(v) for k, v in votes.items()}) }", flush=True)
        recorded += cases
    if not arguments.dry:
        kept = [case for case in deciding.load() if case.kind not in arguments.kinds]
        deciding.save(sorted(kept + recorded, key=lambda case: list(KINDS).index(case.kind)))


if __name__ == "__main__":
    main()
