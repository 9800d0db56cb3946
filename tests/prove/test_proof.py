"""Proofs by Frama-C: networks without alarms, and faults in their C, which alarms must name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.options import Options
from microfold.program import Program
from microfold.prove import proof
from microfold.prove.proof import check_provable, prove
from tests.kernels.graphs import fully_connected_graph

pytestmark = pytest.mark.needs("frama-c")
SECONDS = 300.0


def _program() -> Program:
    return compile_graph(fully_connected_graph(6, 5), target.load("host"), Options(step=True))


def test_a_layer_is_proved_for_any_input() -> None:
    found = prove(_program(), SECONDS)
    assert found.proved
    assert [layer.kernel for layer in found.layers] == ["s8_fully_connected__c_4"]


# Text of the kernel, what replaces it, and the kind of the alarm.
FAULTS: Mapping[str, tuple[str, str, str]] = {
    "index": ("m < layer->outputs; m += 4", "m <= layer->outputs + 3; m += 4", "mem_access"),
    "overflow": ("accumulator * 4", "accumulator * 40000000", "signed_overflow"),
    "shift": (">> channel->shift", ">> (channel->shift + 32)", "shift"),
    "uninitialised": ("int32_t sum0 = channel[0].bias;", "int32_t sum0;", "initialization"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, kind = FAULTS[fault]

    def broken(program: Program) -> dict[str, str]:
        files = emit(program)
        name = f"{program.name}.c"
        assert old in files[name]
        return files | {name: files[name].replace(old, new, 1)}

    monkeypatch.setattr(proof, "emit", broken)
    found = prove(_program(), SECONDS)
    assert not found.proved
    assert kind in {alarm.kind for alarm in found.alarms}


def test_an_analysis_that_does_not_end_is_no_proof() -> None:
    found = prove(_program(), 0.2)
    assert not found.proved
    assert "must end within 0.2 s" in found.layers[0].analysis.problem


def test_c_with_intrinsics_is_refused() -> None:
    graph = fully_connected_graph(6, 5)
    with pytest.raises(InputError, match=r"uses intrinsics \(dsp\): take -t host"):
        check_provable(compile_graph(graph, target.load("cortex-m4"), Options(step=True)))
