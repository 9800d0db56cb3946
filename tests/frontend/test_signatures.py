"""Files of several signatures: one of them is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from microfold import target
from microfold.cli.app import application
from microfold.compiler import compile_file
from microfold.errors import InputError, ModelFormatError
from microfold.frontend.reader import read_model
from microfold.frontend.signatures import entry
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests.tflite_writer import Writer


def two_signatures() -> bytes:
    """`half` and `double` of four numbers; the first subgraph has no name."""
    w = Writer()
    for signature, name, factor in (("", "ADD", 3.0), ("half", "MUL", 0.5), ("double", "MUL", 2.0)):
        x, y = w.input((4,), "f4"), w.tensor((4,), "f4")
        constant = w.tensor((), "f4", data=np.array(factor))
        w.operator(name, [x, constant], y, "AddOptions" if name == "ADD" else "MulOptions")
        w.end_subgraph(signature)
    return w.pack()


@pytest.mark.parametrize(("signature", "gives"), [(None, 7.0), ("half", 2.0), ("double", 8.0)])
def test_the_subgraph_of_a_signature(signature: str | None, gives: float) -> None:
    graph = import_model(two_signatures(), signature=signature)
    (result,) = Interpreter(graph).run(np.full(4, 4, np.float32))
    assert result.tolist() == [gives] * 4


def test_an_error_lists_the_names() -> None:
    with pytest.raises(InputError, match="no signature 'third'; available: 'half', 'double'"):
        import_model(two_signatures(), signature="third")


def test_a_subgraph_that_is_not_there() -> None:
    data = two_signatures()
    with pytest.raises(ModelFormatError, match="signature 'double' is subgraph 2 of 2"):
        entry(data, "the model", read_model(data, "the model")[:2], "double")


@pytest.mark.parametrize("command", ["inspect", "ir", "opt", "kernels", "verify", "build"])
def test_commands_take_it(command: str, tmp_path: Path) -> None:
    path = tmp_path / "two.tflite"
    path.write_bytes(two_signatures())
    words = [command, str(path), "--signature", "double"]
    words += ["--passes", "inline"] if command == "opt" else []
    words += ["-o", str(tmp_path / "out")] if command == "build" else []
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    words[words.index("double")] = "third"
    done = CliRunner().invoke(application(), words)
    assert "no signature 'third'; available: 'half', 'double'" in str(done.exception)


def test_from_python(tmp_path: Path) -> None:
    path = tmp_path / "two.tflite"
    path.write_bytes(two_signatures())
    program = compile_file(path, target.load("host"), signature="half")
    assert "0.5" in " ".join(map(str, program.graph.constants.values()))
