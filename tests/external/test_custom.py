"""Custom operators of the user's own: one in Python and C, one that is a call of a C function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from microfold import target
from microfold.cli.app import run
from microfold.cli.rebuild import compile_as, parse_command
from microfold.codegen.tensor_trace import BuildText
from microfold.compiler import compile_file
from microfold.errors import InputError, TypeRuleError, UnsupportedModelError
from microfold.frontend import custom
from microfold.frontend.importers import IMPORTERS
from microfold.frontend.tflite import import_model
from microfold.host.session import Session
from microfold.ir.interpret import Interpreter
from microfold.ir.op import REGISTRY
from microfold.kernels.kernel import KERNELS
from microfold.ops.external.custom_call import CustomCall
from microfold.options import Options
from microfold.verification.verify import input_sets, verify
from tests.needs import CROSS_TOOLS
from tests.tflite_writer import Writer

HERE = Path(__file__).parent / "custom"
FLAGS = (f"-I{HERE}", str(HERE / "acme_envelope.c"))


@pytest.fixture(autouse=True)
def known_operators() -> Iterator[None]:
    """What other tests know is what it was."""
    registries = (REGISTRY, IMPORTERS, custom.loaded)
    before = [registry.copy() for registry in registries]
    kernels = KERNELS.copy()
    yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)  # type: ignore[arg-type]
    KERNELS[:] = kernels


def model(name: str, outputs: list[tuple[tuple[int, ...], str]], custom_options: bytes = b"") -> bytes:
    w = Writer()
    x = w.input((1, 32), "i2")
    w.operator(name, [x], [w.tensor(*output) for output in outputs], custom=custom_options)
    return w.pack()


def smooth(shift: int = 3) -> bytes:
    return model("AcmeSmooth", [((1, 32), "i2")], bytes(flexbuffers.Dumps({"shift": shift})))


def envelope(count: int = 4) -> bytes:
    return model("AcmeEnvelope", [((1, count), "i2"), ((1,), "i4")])


def test_an_operator_in_python(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="custom operators are not supported"):
        import_model(smooth())
    for _ in range(2):  # again: nothing happens
        custom.load(HERE / "smooth.py")
    step = np.full((1, 32), 800, np.int16)
    (result,) = Interpreter(import_model(smooth())).run(step)
    assert result[0, :3].tolist() == [100, 187, 263]
    path = tmp_path / "smooth.tflite"
    path.write_bytes(smooth())
    program = compile_file(path, target.load("host"))
    assert [layer.kernel.name for layer in program.layers] == ["s16_acme_smooth__c"]
    assert verify(program, input_sets([b.type for b in program.inputs], 6)).exact


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_on_a_core(tmp_path: Path) -> None:
    custom.load(HERE / "smooth.py")
    path = tmp_path / "smooth.tflite"
    path.write_bytes(smooth())
    program = compile_file(path, target.load("cortex-m4"))
    assert verify(program, input_sets([b.type for b in program.inputs], 6)).exact


def test_the_commands_load_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "smooth.tflite"
    path.write_bytes(smooth())
    assert run(["inspect", str(path)]) == 0
    assert "custom operators are not supported" in capsys.readouterr().out
    assert run(["inspect", str(path), "--custom", str(HERE / "smooth.py")]) == 0
    assert "custom operators are not supported" not in capsys.readouterr().out
    assert run(["build", str(path), "-o", str(tmp_path / "out"), "--custom", str(HERE / "smooth.py")]) == 0
    assert "last += (input[i] - last) >> layer->shift" in (tmp_path / "out" / "smooth.c").read_text()


def test_nothing_that_a_dump_names_is_run(tmp_path: Path) -> None:
    """Its command is read; operators come from files that the user names."""
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit(7)")
    command = f"microfold build m.tflite --target host --custom {trap}"
    assert parse_command(command)[1].custom == [trap]
    path = tmp_path / "m.tflite"
    path.write_bytes(smooth())
    text = BuildText("1", file="m.tflite", command=command)
    with pytest.raises(UnsupportedModelError, match="pass a file with --custom"):
        compile_as(text, path, quiet=True)


def test_a_call(tmp_path: Path) -> None:
    """Its function computes it; what nothing says cannot be compared."""
    custom.load(HERE / "calls.toml")
    path = tmp_path / "envelope.tflite"
    path.write_bytes(envelope())
    program = compile_file(path, target.load("host"), Options(external_flags=FLAGS))
    (library,) = program.libraries
    assert (library.headers, library.name) == (
        ("acme_envelope.h",),
        "acme_envelope(), declared in acme_envelope.h",
    )
    samples = np.random.default_rng(0).integers(-32768, 32768, (1, 32)).astype(np.int16)
    peaks, total = Session(program).run(samples)
    expected = np.minimum(np.abs(samples.astype(np.int32)).reshape(4, 8).max(axis=1), 32767)
    np.testing.assert_array_equal(peaks[0], expected)
    assert total == expected.sum()
    result = verify(program, [[samples]])
    assert result.exact
    assert result.unchecked


def test_a_call_in_text_names_a_function() -> None:
    """Nothing else gets into the C."""
    with pytest.raises(TypeRuleError, match=r"function must be a name in C; it is 'f\(\); g'"):
        CustomCall("f(); g", "f.h", ()).infer()


def test_a_call_whose_sizes_differ() -> None:
    custom.load(HERE / "calls.toml")
    with pytest.raises(UnsupportedModelError, match=r"its outputs must match its C function, int16\[1,4\]"):
        import_model(envelope(8))


FAULTS = {
    "a.txt": ("", "must be in a .py or .toml file; it is a.txt"),
    "b.py": ("1 / 0", "b.py: its operators cannot be loaded: ZeroDivisionError"),
    "c.py": ("def (", "c.py: its operators cannot be loaded: SyntaxError"),
    "d.toml": ("[A]\nfunction = 'f'", r"d.toml: \[A\] must be a table of function, header"),
    "e.toml": ("[A]\nfunction = 'f()'\nheader = 'a.h'", r"function must be a name in C; it is 'f\(\)'"),
    "f.toml": ("[A]\nfunction = 'f'\nheader = 'a>'", "header must be a header's name"),
    "g.toml": ("[A]\nfunction = 'f'\nheader = 'a.h'\ninputs = 'int8[1]'", "inputs must be a list of types"),
    "h.toml": ("[SignalRfft]\nfunction = 'f'\nheader = 'a.h'", "custom operator SignalRfft already exists"),
    "i.toml": ("[A", "i.toml must be a TOML file"),
    "j.toml": ("a = 1", r"j.toml: \[a\] must be a table"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_files_that_say_nothing(name: str, tmp_path: Path) -> None:
    text, reason = FAULTS[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason):
        custom.load(tmp_path / name)
    with pytest.raises(InputError):
        custom.load(tmp_path / "missing.py")
