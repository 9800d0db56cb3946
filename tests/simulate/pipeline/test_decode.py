"""Classes and operands of instructions, as objdump writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold.errors import TargetError, ToolError
from microfold.simulate.pipeline.decode import decode
from microfold.simulate.pipeline.disassembly import Disassembly, read_lines
from microfold.simulate.trace import read_counts
from microfold.target import load
from microfold.target.pipeline import CLASSES

# Text, class, registers read of any kind, registers written.
CASES = [
    ("adds r0, #1", "add_immediate", "r0", "r0 flags"),
    ("add.w r0, r1, r2, lsl #2", "shifted_operand", "r1 r2", "r0"),
    ("addeq r0, r1, r2", "add", "r0 r1 r2", "r0"),
    ("bics r0, r1", "alu", "r0 r1", "r0 flags"),
    ("lsls r0, r1, #3", "shift", "r1", "r0 flags"),
    ("movs r0, #1", "move", "", "r0 flags"),
    ("movt r0, #1", "move", "r0", "r0"),
    ("cmp r4, #1", "alu", "r4", "flags"),
    ("csel r0, r1, r2, eq", "alu", "r1 r2", "r0"),
    ("muls r0, r1", "multiply", "r0 r1", "r0 flags"),
    ("mls r0, r1, r2, r3", "multiply", "r1 r2 r3", "r0"),
    ("smlal r0, r1, r2, r3", "multiply_long", "r0 r1 r2 r3", "r0 r1"),
    ("sdiv r0, r1, r2", "divide", "r1 r2", "r0"),
    ("sxtb16 r0, r1, ror #8", "dsp", "r1", "r0"),
    ("bfi r0, r1, #2, #3", "bit_field", "r0 r1", "r0"),
    ("ssat r0, #8, r1, asr #12", "dsp", "r1", "r0"),
    ("ldr.w r8, [r1, r2, lsl #2]", "load", "r1 r2", "r8"),
    ("ldrsb.w r3, [r4], #1", "load_narrow", "r4", "r3"),
    ("ldrd r0, r1, [r2, #-8]!", "load_double", "r2", "r0 r1"),
    ("ldr pc, [sp], #4", "load_branch", "sp", "pc"),
    ("strh r0, [r1, #2]", "store", "r0 r1", ""),
    ("push {r4, r5, r6, lr}", "store_multiple", "lr r4 r5 r6 sp", ""),
    ("ldmia.w r0!, {r1, r2, r3}", "load_multiple", "r0", "r1 r2 r3"),
    ("pop {r4, pc}", "load_multiple", "sp", "pc r4"),
    ("bne.n 1234", "branch_conditional", "", ""),
    ("cbz r0, 1234", "branch_conditional", "r0", ""),
    ("bl 1234 <f>", "branch", "", "lr"),
    ("bx lr", "branch_indirect", "lr", ""),
    ("tbb [pc, r0]", "branch_indirect", "pc r0", ""),
    ("itt ne", "it", "", ""),
    ("le lr, 1234", "loop_end", "lr", "lr"),
    ("vldr s0, [r0, #4]", "float_load", "r0", "s0"),
    ("vldmia r0!, {d0-d1}", "float_load_multiple", "r0", "s0 s1 s2 s3"),
    ("vfma.f32 s0, s1, s2", "float_multiply_add", "s0 s1 s2", "s0"),
    ("vdiv.f32 s0, s1, s2", "float_divide", "s1 s2", "s0"),
    ("vmov r0, s1", "core_from_float", "s1", "r0"),
    ("vmov s1, r0", "float_from_core", "r0", "s1"),
    ("vmov r0, r1, s4, s5", "core_pair_from_float", "s4 s5", "r0 r1"),
    ("vmov d1, r0, r1", "float_pair_from_core", "r0 r1", "s2 s3"),
    ("vmov.f32 s0, #112", "float_constant", "", "s0"),
    ("vmov.f32 s0, s1", "float_move", "s1", "s0"),
    ("vsub.f32 s0, s1, s2", "float_add", "s1 s2", "s0"),
    ("vmul.f32 s0, s1, s2", "float", "s1 s2", "s0"),
    ("vsqrt.f32 s0, s1", "float_root", "s1", "s0"),
    ("vldrb.u8 q0, [r0], #16", "vector_load", "r0", "s0 s1 s2 s3"),
    ("vldrw.u32 q0, [r0, q1]", "vector_gather", "r0 s4 s5 s6 s7", "s0 s1 s2 s3"),
    ("vst20.8 {q0, q1}, [r0]", "vector_store_interleaved", "r0 s0 s1 s2 s3 s4 s5 s6 s7", ""),
    ("vmladava.s8 r2, q0, q1", "vector_sum", "r2 s0 s1 s2 s3 s4 s5 s6 s7", "r2"),
    ("vmlav.s8 r2, q0, q0", "vector_sum", "s0 s1 s2 s3", "r2"),
    ("vmlaldava.s16 r2, r3, q0, q0", "vector_sum", "r2 r3 s0 s1 s2 s3", "r2 r3"),
    ("vqmovnb.s32 q0, q1", "vector_narrow", "s0 s1 s2 s3 s4 s5 s6 s7", "s0 s1 s2 s3"),
    ("vadd.f32 q0, q1, r0", "vector_float_add", "r0 s4 s5 s6 s7", "s0 s1 s2 s3"),
    ("vadd.i32 q0, q1, r0", "vector_integer", "r0 s4 s5 s6 s7", "s0 s1 s2 s3"),
    ("vdup.32 q0, r0", "vector_from_core", "r0", "s0 s1 s2 s3"),
    ("vmov.32 q0[3], q0[1], r2, r3", "lane_from_core", "r2 r3", "s1 s3"),
    ("vpst", "vector_predicate", "", "p0"),
    ("vpsel q0, q1, q2", "vector_predicate", "s10 s11 s4 s5 s6 s7 s8 s9", "s0 s1 s2 s3"),
    ("vcmp.u32 cs, q0, r3", "vector_compare", "r3 s0 s1 s2 s3", "p0"),
    ("vaddvat.u32 r0, q1", "vector_sum", "r0 s4 s5 s6 s7", "r0"),
    ("vrmlaldavhax.s32 r0, r1, q0, q0", "vector_sum", "r0 r1 s0 s1 s2 s3", "r0 r1"),
    ("vmladavt.s8 r0, q0, q0", "vector_sum", "s0 s1 s2 s3", "r0"),
    ("vmaxv.s8 r0, q0", "vector_extreme", "r0 s0 s1 s2 s3", "r0"),
    ("vmov.32 r1, d6[1]", "core_from_float", "s13", "r1"),
    ("vmsr p0, r2", "system", "r2", "p0"),
    ("wlstp.8 lr, r1, 1234", "loop_start", "r1", "lr"),
    ("asrl r0, r1, #31", "alu", "r0 r1", "r0 r1"),
]


@pytest.mark.parametrize(("text", "name", "read", "written"), CASES, ids=[case[0] for case in CASES])
def test_what_instructions_are(text: str, name: str, read: str, written: str) -> None:
    mnemonic, _, operands = text.partition(" ")
    found = decode(0, 4, mnemonic, operands)
    assert found.name == name in CLASSES
    used = {*found.reads, *found.accumulates, *found.addresses, *found.stores}
    assert (used, {*found.writes}) == ({*read.split()}, {*written.split()})


def test_a_listing() -> None:
    lines = read_lines(
        "code.elf:     file format elf32-littlearm\n\n00000100 <f>:\n"
        "     100:\tmovs\tr0, #1\n     102:\tldr.w\tr1, [pc, #4]\t@ 108 <f+0x8>\n"
        "     106:\tbx\tlr\n     108:\t.word\t0x12345678\n"
    )
    image = Disassembly(lines)
    assert [(i.name, i.size) for i in image.block(0x100, 9)] == [
        ("move", 2),
        ("load", 4),
        ("branch_indirect", 2),
    ]
    assert image.block(0x108, 1) == ()


@pytest.mark.parametrize("line", ["1 2 3 4 5", "a b c d e f", "1 2 3 4 5 6 7", "1 2 3 4 5 -6 edge"])
def test_counts_that_the_plugin_does_not_write(line: str) -> None:
    with pytest.raises(ToolError, match="six numbers"):
        list(read_counts(f"{line}\nend\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source = 's'", "must have error"),
        ("source = 's'\nerror = 1\nspeed = 2", r"unknown key pipeline\.speed"),
        ("source = 's'\nerror = '1'", "whole number"),
        ("source = 's'\nerror = 1\nnever = [['load']]", "pairs"),
        ("source = 's'\nerror = 1\nnever = [['load', 'lode']]", "unknown 'lode'"),
        ("source = 's'\nerror = 1\none_of = 'load'", "must be a list"),
        ("source = 's'\nerror = 1\nissues = 3", "must be a table"),
        ("source = 's'\nerror = 1\nissues = { lode = {} }", "unknown 'lode'"),
        ("source = 's'\nerror = 1\nissues = { load = 3 }", "must be a table"),
        (
            "source = 's'\nerror = 1\nissues = { load = { stage = 3 } }",
            r"unknown key pipeline\.issues\.load\.stage",
        ),
        ("source = 's'\nerror = 1\nissues = { load = { latency = 3.5 } }", "whole number"),
        ("source = 's'\nerror = 1\nissues = { load = { alone = 1 } }", "true or false"),
        ("source = 's'\nerror = 1\nissues = { load = { units = 'a' } }", "list of names"),
    ],
)
def test_mistakes_in_a_pipeline_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"features = []\n[pipeline]\n{text}\n")
    with pytest.raises(TargetError, match=message):
        load(str(path))


def test_cores_of_one_kind_share_their_table(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    for key, core in (("timing", "cortex-m4"), ("pipeline", "cortex-m7")):
        path.write_text(f"features = []\n{key} = '{core}'\n")
        assert getattr(load(str(path)), key) == getattr(load(core), key) is not None
    assert load("cortex-m4-nofp").timing == load("cortex-m4").timing
    for key in ("timing", "pipeline"):
        path.write_text(f"features = []\n{key} = 'host'\n")
        with pytest.raises(TargetError, match=f"{key} must name another target that has one; it is 'host'"):
            load(str(path))
