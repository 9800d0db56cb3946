"""The report says all that was chosen, and JSON is JSON."""

from __future__ import annotations

import json

import pytest

from microfold import target
from microfold.cli.common import to_json
from microfold.compiler import compile_graph, explain_kernels
from microfold.errors import InputError
from microfold.ir.text import parse
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.reporting.data import _NOT_CHOSEN, build_report
from tests.cli.test_passes import SCALED
from tests.command_line import refuse_as_json


def test_every_option_is_in_the_report() -> None:
    options = Options(flash=99_999, io_layout="NHWC", external_flags=("-Iinclude",))
    context = PassContext(opt_level=2, disabled_pass=["fuse_ops", "fold_constant"])
    program = compile_graph(parse(SCALED), target.load("cortex-m4"), options, context=context)
    report = json.loads(to_json(build_report(program, None)))
    assert set(report["options"]) == set(Options.__struct_fields__)
    assert report["options"]["flash"] == 99_999
    assert report["options"]["io_layout"] == "NHWC"
    assert report["options"]["external_flags"] == ["-Iinclude"]
    assert set(report["passes"]) == set(PassContext.__struct_fields__) - _NOT_CHOSEN
    assert report["passes"] == {
        "opt_level": 2,
        "required_pass": [],
        "disabled_pass": ["fold_constant", "fuse_ops"],
    }


def test_numerics_are_asked_for_once() -> None:
    core = target.load("host")
    for make in (compile_graph, explain_kernels):
        with pytest.raises(InputError, match="the same numerics; they ask for relaxed and exact"):
            make(parse(SCALED), core, Options(numerics="relaxed"), context=PassContext())
    relaxed = PassContext(numerics="relaxed")
    assert compile_graph(parse(SCALED), core, Options(numerics="relaxed"), context=relaxed).context.numerics


def test_kernels_are_explained_as_they_are_chosen() -> None:
    core = target.load("cortex-m4")
    for options in (Options(), Options(optimize="size"), Options(flash=250)):
        program = compile_graph(parse(SCALED), core, options)
        explained = explain_kernels(parse(SCALED), core, options)
        assert [e.candidates[0].kernel for e in explained] == [layer.kernel for layer in program.layers]


def test_json_has_no_numbers_that_json_lacks() -> None:
    data = {"a": [float("inf"), -float("inf"), float("nan"), 1.5], "b": (1, None, {"c": float("inf")})}
    assert json.loads(to_json(data)) == {"a": ["inf", "-inf", "nan", 1.5], "b": [1, None, {"c": "inf"}]}


def test_errors_as_json() -> None:
    assert refuse_as_json("build", "missing.tflite")["problems"] == []
    assert "--flash" in refuse_as_json("build", "x.tflite", "--flash", "x")["error"]
