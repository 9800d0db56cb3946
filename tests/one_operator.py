"""An operator all the way: from a file that has nothing else, to the host and to a simulated core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from microfold import target
from microfold.compiler import compile_file
from microfold.ir.interpret import Interpreter
from microfold.simulate.toolchain import missing_tools
from microfold.verification import verify
from tests.tflite_writer import one_operator

RUNS = 6


def check_float_operator(
    folder: Path, name: str, *operands: ArrayLike, gives: ArrayLike, **more: Any
) -> None:
    """The operator gives this result, and its C what the reference gives for these and other operands.

    The simulated core, Cortex-M4, is left out where its tools are missing.

    Args:
        folder: for the file.
        more: options, see `one_operator`.
    """
    arrays = [np.asarray(operand, np.float32) for operand in operands]
    path = folder / f"{name.lower()}.tflite"
    path.write_bytes(one_operator(name, [array.shape for array in arrays], **more))
    for core in ("host",) if missing_tools() else ("host", "cortex-m4"):
        program = compile_file(path, target.load(core))
        (result,) = Interpreter(program.source).run(*arrays)
        np.testing.assert_allclose(result, np.asarray(gives, np.float32), rtol=1e-6)
        others = verify.input_sets([binding.type for binding in program.inputs], RUNS)
        found = verify.verify(program, [arrays, *others])
        assert found.exact, found.differences
