"""Compilation with the keyword options of the Python interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from microfold import target as targets
from microfold.api.options import FURTHER, CompileOptions, code_options
from microfold.compiler import compile_graph
from microfold.frontend.custom import load as load_custom
from microfold.frontend.labels import read_labels
from microfold.frontend.model_source import ModelSource, load_model
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass, Sequential
from microfold.program import Program, origin_of
from microfold.target import Target
from microfold.transform import available


def load_target(name: str | os.PathLike[str]) -> Target:
    """Return the description of a target.

    Args:
        name: name of a built-in target, e.g. ``cortex-m4``, or path of a `.toml` file.

    Raises:
        TargetError: the target is unknown, or its description is invalid.
    """
    return targets.load(os.fspath(name))


def compile_program(
    model: ModelSource, target: str | os.PathLike[str] | Target, given: CompileOptions
) -> Program:
    """Return the program of a model for a target.

    Raises:
        MicrofoldError: the model cannot be compiled, or an option is wrong.
    """
    chosen = code_options(given)
    further: dict[str, Any] = {**FURTHER, **given}
    core = target if isinstance(target, Target) else load_target(target)
    for file in further["custom"]:
        load_custom(Path(file))
    source = load_model(model, further["signature"], further["input_shapes"])
    passes, labels = further["passes"], further["labels"]
    context = PassContext(
        opt_level=further["opt_level"],
        disabled_pass=further["disabled"],
        instruments=further["instruments"],
        numerics="relaxed" if chosen.numerics == "relaxed" else "exact",
    )
    return compile_graph(
        source.graph,
        core,
        chosen,
        name=further["name"],
        context=context,
        passes=passes if passes is None or isinstance(passes, Pass) else Sequential(passes, known=available),
        origin=origin_of(Path(source.file), source.data) if source.data is not None else None,
        labels=source.labels if labels is None else read_labels(Path(labels)),
        explain=True,
    )
