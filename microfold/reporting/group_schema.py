"""Typed definition of the report of several models: the fields of `<name>_report.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from microfold.reporting.schema import BuildId, BuildReport, Count, ReportedMemory, doc

# Version of the report. Removing a field or changing its meaning increments it.
GROUP_REPORT_VERSION = 1


class GroupRam(Struct, frozen=True):
    """RAM of several models, in bytes."""

    arena: Annotated[Count, doc("largest arena of the models")]
    arena_object: Annotated[Count, doc("arena with the owner word")]
    state: Annotated[Count, doc("states of all models, kept between runs")]
    stack: Annotated[Count | None, doc("upper bound for a call of any model")]
    apart: Annotated[Count, doc("arenas and states without sharing")]


class GroupFlash(Struct, frozen=True):
    """Flash of several models, in bytes."""

    weights: Annotated[Count, doc("constants of all models; shared constants count once")]
    weights_saved: Annotated[Count, doc("bytes of constants saved by sharing")]
    code: Annotated[
        tuple[Count, ...] | None, doc("code in each model's own files, in the order of the models")
    ]
    kernels: Annotated[Count | None, doc("functions that several models call")]
    library: Annotated[Count | None, doc("functions of the C library that at least one model needs")]
    padding: Annotated[Count | None, doc("bytes that only align the other parts")]
    total: Annotated[Count | None, doc("all models, linked together")]
    apart: Annotated[Count | None, doc("sum of the models, each linked separately")]


class ReportedSharedFunction(Struct, frozen=True):
    """Function that several models call."""

    function: Annotated[str, doc("C name")]
    kernel: Annotated[str, doc("name of the kernel")]
    models: Annotated[tuple[str, ...], Meta(min_length=2, description="models that call it")]


class GroupReport(Struct, frozen=True, kw_only=True):
    """Content of <name>_report.json, which `microfold build` writes for several models.

    Sizes are in bytes; null means not measured.
    """

    report_version: Annotated[Literal[1], doc("version of this schema")] = GROUP_REPORT_VERSION
    microfold_version: Annotated[str, doc("version of microfold")]
    build_id: Annotated[BuildId, doc("C constant in all files of the build")]
    name: Annotated[str, doc("prefix of all shared names")]
    target: Annotated[str, doc("name of the target")]
    ram: Annotated[GroupRam, doc("RAM of all models together")]
    flash: Annotated[GroupFlash, doc("flash of all models together")]
    shared: Annotated[tuple[ReportedSharedFunction, ...], doc("functions that several models call")]
    memories: Annotated[
        tuple[ReportedMemory, ...], doc("memories of the target, with the usage by all models")
    ]
    models: Annotated[
        tuple[BuildReport, ...],
        Meta(min_length=2, description="reports of the models, each built separately"),
    ]
