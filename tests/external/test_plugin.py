"""A plug-in of one's own: the example of docs/externals.md, found through an entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from microfold import compiler, target
from microfold.codegen.emit import emit
from microfold.errors import InputError
from microfold.external import registry
from microfold.external.cmsis_nn.external import CmsisNN
from microfold.ir.text import parse
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.verification.verify import input_sets, verify
from tests.external.example.plugin import Acme

EXAMPLE = Path(__file__).parent / "example"
FLAGS = (f"-I{EXAMPLE}", str(EXAMPLE / "acme_dsp.c"))
NETWORK = """
graph @net(%a: int8[1,9] q(0.5, 3), %b: int8[1,9] q(0.5, 3), %c: int8[1,1] q(0.5, 3)) -> (%y) {
  %m: int8[1,9] q(0.5, 3) = maximum(%a, %b)
  %l: int8[1,9] q(0.5, 3) = clip(%m) {minimum=-4.0, maximum=6.0}
  %y: int8[1,9] q(0.5, 3) = maximum(%l, %c)
}
"""


def install(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    """As if a package with these entry points were installed."""
    found = [EntryPoint(name, value, registry.GROUP) for name, value in points]
    monkeypatch.setattr(registry, "entry_points", lambda group: found if group == registry.GROUP else [])
    monkeypatch.setattr(registry, "_points", registry._points.__wrapped__)


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("acme", "tests.external.example.plugin:Acme"))
    decisions: list[Decision] = []
    program = compiler.compile_graph(
        parse(NETWORK),
        target.load("host"),
        Options(external=("acme",), external_flags=FLAGS),
        context=PassContext(sink=decisions.append),
    )
    assert [layer.operators for layer in program.layers] == [("maximum", "clip"), ("maximum",)]
    assert program.layers[0].kernel.name == "s8_maximum__acme"
    assert any("it does not broadcast" in decision.reason for decision in decisions)
    source = emit(program)["net.c"]
    assert '#include "acme_dsp.h"' in source
    assert "net__s8_maximum__acme(&net__l_layer, (const int8_t *)NET_ARENA(net__input_0_offset)," in source
    result = verify(program, input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.differences


def test_the_documentation_shows_it() -> None:
    text = (Path(__file__).parents[2] / "docs" / "externals.md").read_text(encoding="utf-8")
    for file in ("plugin.py", "templates/max.c.j2"):
        source = (EXAMPLE / file).read_text(encoding="utf-8")
        shown = source[source.index("ACME = ") :] if file == "plugin.py" else source
        assert shown in text, f"docs/externals.md must show {file} as it is"


def test_shipped_ones_are_there_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert set(registry.available()) == {"cmsis-nn", "ethos-u"}
    assert [external.name for external in registry.resolve(["cmsis-nn"])] == ["cmsis-nn", "ethos-u"]


def test_entry_points_of_the_shipped_ones_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("cmsis-nn", "microfold.external.cmsis_nn.external:CmsisNN"))
    assert registry.available()["cmsis-nn"] is CmsisNN


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (("acme", "tests.external.no_such_module:Acme"), "cannot be loaded"),
        (("acme", "tests.external.example.plugin:check"), "derived from External"),
        (("other", "tests.external.example.plugin:Acme"), "with its own name"),
        (("cmsis-nn", "tests.external.test_plugin:Impostor"), "must have different names"),
    ],
)
def test_bad_entry_points(monkeypatch: pytest.MonkeyPatch, point: tuple[str, str], reason: str) -> None:
    install(monkeypatch, point)
    with pytest.raises(InputError, match=reason):
        registry.available()


class Impostor(Acme):
    """Takes a name that is in use."""

    name = "cmsis-nn"
