"""Limits of RAM and flash that hold for several models together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.group import arena_room, arena_size, emit_group
from microfold.compiler import prepare
from microfold.errors import BudgetError
from microfold.frontend import tflite
from microfold.host.library import FLAGS
from microfold.lowering.group_budget import Group, build_within
from microfold.lowering.optimised import ImportedModel
from microfold.lowering.prepared import PreparedProgram
from microfold.options import Options
from microfold.program import Program
from tests.codegen.test_group import MAIN, STREAM, group, wanted
from tests.codegen.toolchain import run, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import output
from tests.needs import CROSS_TOOLS, need_tools

# Two without state, and one that keeps some.
THREE = (MODELS["dscnn_bn_int8"], MODELS["cnn_int8"], STREAM)
CORE = "cortex-m4"
STEPS = 3
# Estimates leave out a little, and what saves little time may not be worth its flash.
SLACK = 1.001


@cache
def tried(
    model: Path, core: str, name: str, options: Options, explain: bool
) -> PreparedProgram | BudgetError:
    """Models are built with the same options again and again."""
    graph = tflite.import_model(tflite.read_file(model), model.stem, model.name)
    try:
        return prepare(ImportedModel.of(graph, target.load(core), options), name=name, explain=explain)
    except BudgetError as refusal:
        return refusal


def prepared(model: Path, core: str, name: str, options: Options, explain: bool) -> PreparedProgram:
    found = tried(model, core, name, options, explain)
    if isinstance(found, BudgetError):
        raise found
    return found


def build(
    models: Sequence[Path] = THREE, core: str = CORE, names: Sequence[str] = (), **options: int | str
) -> Group:
    named = zip(models, names or [model.stem for model in models], strict=True)
    builds = [(name, partial(prepared, model, core, name)) for model, name in named]
    return build_within(builds, Options(memory="split", objective="cycles=1", **options))  # type: ignore[arg-type]


def ram(group: Group) -> int:
    """As the firmware has it."""
    return arena_size(group.programs) + sum(program.state_size for program in group.programs)


def flash(group: Group) -> int:
    return group.flash


def time(group: Group) -> int:
    return sum(program.estimated_cycles or 0 for program in group.programs)


def least(models: Sequence[Path] = THREE, names: Sequence[str] = (), **limits: int) -> tuple[int, str]:
    """The bytes that a refusal names, and what it says."""
    with pytest.raises(BudgetError) as refused:
        build(models, names=names, **limits)  # type: ignore[arg-type]
    (name,) = limits.keys() & {"ram", "flash"}
    allowed = refused.value.least(name)
    assert allowed is not None, refused.value
    return allowed, str(refused.value)


def sweep(name: str, size: Callable[[Group], int], least: int, most: int) -> list[int]:
    """Limits are kept, and more memory takes no more time: times from the least limit to the largest."""
    times: list[int] = []
    for step in range(STEPS + 1):
        limit = least + (most - least) * step // STEPS
        group = build(**{name: limit})  # type: ignore[arg-type]
        assert size(group) <= limit
        times.append(time(group))
        assert times[-1] <= SLACK * min(times)
    return times


@pytest.mark.parametrize("unit", [8, 32])
def test_room(unit: int) -> None:
    """The shared arena takes what is left, never more."""
    (program,) = build(THREE[:1], align=unit).programs
    taken = arena_size([program])
    assert arena_room(taken, unit) >= program.arena.size > arena_room(taken - 1, unit)
    assert arena_room(unit - 1, unit) == 0


@pytest.mark.slow
def test_ram() -> None:
    """From the least that a refusal names up: limits are kept, and more RAM takes no more time."""
    allowed, text = least(ram=400)
    assert "dscnn_bn_int8 needs the most" in text and "states of 40" in text
    for short in (allowed - 1, allowed - 60, 8):
        assert least(ram=short)[0] == allowed
    sweep("ram", ram, allowed, ram(build()))


@pytest.mark.slow
def test_what_others_keep_is_not_there() -> None:
    """The arena that one model has alone is too large where another one has state."""
    limit = ram(build(THREE[:1], ram=ram(build(THREE[:1]))))
    kept = build(THREE[2:]).programs[0].state_size
    programs = build((THREE[0], STREAM), ram=limit).programs
    alone = build(THREE[:1], ram=limit).programs
    assert kept > 0 and arena_size(programs) <= limit - kept < arena_size(alone)


@pytest.mark.slow
def test_flash() -> None:
    allowed, text = least(flash=8)
    assert all(model.stem in text for model in THREE)
    assert least(flash=allowed - 1)[0] == allowed
    times = sweep("flash", flash, allowed, flash(build(flash=1 << 20)))
    assert times[-1] == time(build(flash=1 << 20))


@pytest.mark.slow
def test_shared_constants_count_once() -> None:
    """Twice the same network takes the flash of one, and is made smaller as one."""
    twice, names = (MODELS["cnn_int8"],) * 2, ("one", "two")
    one = partial(build, twice[:1])
    fastest = one(flash=1 << 20)
    both = build(twice, names=names, flash=2 * fastest.flash)
    assert both.flash < 1.5 * fastest.flash and time(both) == 2 * time(fastest)
    assert build(twice, names=names, flash=both.flash - 8).flash <= both.flash - 8
    text = least(twice, names, flash=8)[1]
    assert "count once" in text


@pytest.mark.slow
def test_both() -> None:
    """Where both are short, both are kept, or what the refusal names does."""
    least_ram, least_flash = least(ram=8)[0], least(flash=8)[0]
    kept = 0
    for limit_ram in (least_ram - 8, least_ram + 64):
        for limit_flash in (least_flash - 8, least_flash + 600):
            try:
                group = build(ram=limit_ram, flash=limit_flash)
            except BudgetError as refusal:
                (remedy,) = refusal.remedies
                limits = {"ram": limit_ram, "flash": limit_flash, **remedy}
                group = build(**limits)  # type: ignore[arg-type]
            else:
                limits = {"ram": limit_ram, "flash": limit_flash}
                kept += 1
            assert ram(group) <= int(limits["ram"])
            assert flash(group) <= int(limits["flash"])
    assert kept > 0


@pytest.mark.slow
def test_another_io_is_named_where_it_fits_all() -> None:
    models = (MODELS["digits"], STREAM)
    allowed, _ = least(models, ram=8)
    with pytest.raises(BudgetError) as refused:
        build(models, ram=allowed - 8)
    assert {"io": "caller"} in refused.value.remedies
    assert ram(build(models, ram=allowed - 8, io="caller")) <= allowed - 8
    with pytest.raises(BudgetError) as refused:
        build(models, ram=8)
    assert {"io": "caller"} not in refused.value.remedies


def short_of_both(core: str) -> Sequence[Program]:
    """Two networks with less RAM and flash than they have otherwise."""
    models, names = (MODELS["dscnn_bn_int8"], MODELS["preact_bn_int8"]), ("one", "two")
    free = build(models, core, names)
    limits = {"ram": ram(free) - 64, "flash": flash(free) - 300}
    group = build(models, core, names, **limits)
    assert ram(group) <= limits["ram"] and flash(group) <= limits["flash"]
    return group.programs


@pytest.mark.slow
def test_bits_and_the_arena_as_compiled(tmp_path: Path) -> None:
    programs = short_of_both("host")
    sources = write(tmp_path, dict(emit_group(group(programs)).files) | {"main.c": MAIN.format(place="")})
    run(["cc", "-std=c99", *FLAGS, *sources, "-lm", "-o", tmp_path / "both"])
    printed = [int(word) for word in run([tmp_path / "both"]).split()]
    assert printed == [*wanted(programs), arena_size(programs)]


@pytest.mark.slow
def test_bits_and_the_arena_on_a_core(tmp_path: Path) -> None:
    need_tools(*CROSS_TOOLS)
    programs = short_of_both(CORE)
    sources = write(tmp_path, dict(emit_group(group(programs)).files) | {"main.c": MAIN.format(place="")})
    printed = output(tmp_path, sources)
    assert [int(word) for word in printed.split()] == [*wanted(programs), arena_size(programs)]


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    arguments = ("build", MODELS["cnn_int8"], STREAM, "-t", CORE, "-o", tmp_path)
    assert "plus an owner word" in succeed(*arguments, "--ram", 800, "--flash", 7000)
    header = (tmp_path / "cnn_int8.h").read_text(encoding="utf-8")
    assert "--flash=7000 --ram=800" in " ".join(header.replace("\n *", " ").split())
    text = refuse(*arguments, "--ram", 100)
    assert "must fit 100 bytes of RAM; cnn_int8 needs the most: the state needs 0" in text
    assert "allow " in text
