"""The C of Cortex-M55 on this machine: the models of Helium's intrinsics, and programs under sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.simulate.boards import find
from microfold.simulate.run import run
from microfold.simulate.sources import ModelSources, TensorSpec
from microfold.support.resources import template_dir
from tests.codegen import host_cores, sweep
from tests.codegen.matrix import ARM_GCC
from tests.needs import CROSS_TOOLS, need_sanitizers, need_tools
from tests.sampling import sampled

INPUT_BYTES = 256
CALLS = 24
INT8 = np.dtype(np.int8)
CHUNKS = 9
RUNS = 3

# Expressions of random vectors a and b of every type (a8, au16, af, ...), scalars n and m, a shift of -40 to
# 40, predicates p8, p16 and p32 of first lanes, and offsets (o8, o16, o32) below 64.
VALUES = """
vabsq_s32(a32)  vnegq_s32(a32)  vaddq_s16(a16, b16)  vaddq_s32(a32, b32)  vaddq_n_s32(a32, n)
vaddq_n_u32(au32, (uint32_t)n)  vsubq_s32(a32, b32)  vsubq_n_s32(a32, n)  vqaddq_n_s16(a16, (int16_t)n)
vqaddq_n_s32(a32, n)  vandq_s32(a32, b32)  vandq_u32(au32, bu32)  veorq_s32(a32, b32)  veorq_u8(au8, bu8)
vmaxq_s8(a8, b8)  vmaxq_s16(a16, b16)  vmaxq_s32(a32, b32)  vmaxq_u32(au32, bu32)
vminq_s8(a8, b8)  vminq_s16(a16, b16)  vminq_s32(a32, b32)  vminq_u32(au32, bu32)
vshlq_n_s8(a8, 4)  vshlq_n_s16(a16, 8)  vshlq_n_s32(a32, 24)  vshlq_r_s32(a32, shift)  vshlq_s32(a32, shifts)
vshrq_n_s8(a8, 4)  vshrq_n_s16(a16, 8)  vshrq_n_s32(a32, 31)  vshrq_n_s32(a32, 32)  vshrq_n_u32(au32, 1)
vrshrq_n_s32(a32, 2)  vrshrq_n_s32(a32, 32)  vrshrq_n_u32(au32, 7)  vrshlq_n_s32(a32, shift)
vrshlq_s32(a32, shifts)  vqshlq_n_s16(a16, 8)  vqshlq_n_s32(a32, 24)  vqshlq_r_s32(a32, shift)
vsliq_n_s32(a32, b32, 16)  vmulq_s32(a32, b32)  vmulq_n_s32(a32, n)  vmulq_n_u16(au16, (uint16_t)n)
vmulhq_s32(a32, b32)  vmulhq_u32(au32, bu32)  vqrdmulhq_s32(a32, b32)  vqrdmulhq_n_s32(a32, n)
vqrdmulhq_m_n_s32(a32, b32, n, p32)  vqdmlahq_n_s32(a32, b32, n)  vqdmlahq_n_s32(a32, a32, 1)
vmlaq_n_s32(a32, b32, n)  vmlasq_n_s32(a32, b32, n)  vmullbq_int_s16(a16, b16)  vmulltq_int_s16(a16, b16)
vmovlbq_s16(a16)  vmovltq_s16(a16)  vmovnbq_s32(a16, b32)  vmovntq_s32(a16, b32)  vqmovnbq_s32(a16, b32)
vqmovntq_s32(a16, b32)  vdupq_n_s8((int8_t)n)  vdupq_n_u8((uint8_t)n)  vdupq_n_s16((int16_t)n)
vdupq_n_u16((uint16_t)n)  vdupq_n_s32(n)  vdupq_n_u32((uint32_t)n)  vdupq_n_f32(f)  vdupq_m_n_s32(a32, n, p32)
vidupq_n_u16((uint32_t)n, 4)  vidupq_n_u32((uint32_t)n, 2)  vsetq_lane_s32(n, a32, 2)
vpselq_s32(a32, b32, p32)  vpselq_f32(af, bf, p32)
vpselq_s32(a32, b32, vcmpeqq_n_s32(vandq_s32(a32, vdupq_n_s32(1)), 0))
vpselq_s32(a32, b32, vcmpgeq_n_s32(a32, n))  vpselq_s32(a32, b32, vcmpgtq_n_s32(a32, n))
vpselq_s32(a32, b32, vcmpltq_n_s32(a32, n))  vpselq_s32(a32, b32, vcmphiq_n_u32(au32, (uint32_t)n))
vpselq_s32(a32, b32, vcmpgeq_n_f32(af, f))  vpselq_s32(a32, b32, vcmpgtq_n_f32(af, f))
vaddq_f32(af, bf)  vaddq_n_f32(af, f)  vsubq_f32(af, bf)  vmulq_f32(af, bf)  vmulq_n_f32(af, f)  vabsq_f32(af)
vmaxnmq_f32(af, bf)  vminnmq_f32(af, bf)  vcvtq_f32_s32(a32)  vcvtq_s32_f32(af)
vaddq_f16(ah, bh)  vmulq_f16(ah, bh)  vmaxnmq_f16(ah, bh)  vminnmq_f16(ah, bh)
vdupq_n_f16((float16_t)(n & 1023))
vreinterpretq_s8_s32(a32)  vreinterpretq_s16_s32(a32)  vreinterpretq_s32_s16(a16)  vreinterpretq_s32_u32(au32)
vreinterpretq_s32_f32(af)  vreinterpretq_u32_s32(a32)  vreinterpretq_u32_f32(af)  vreinterpretq_f16_u16(au16)
vreinterpretq_u16_f16(ah)
vmladavq_s8(a8, b8)  vmladavaq_s8(n, a8, b8)  vmladavq_s16(a16, b16)  vmladavaq_s16(n, a16, b16)
vmlaldavaq_s16((int64_t)n * m, a16, b16)  vaddvaq_s8(n, a8)  vaddvaq_p_u32((uint32_t)n, au32, p32)
vmaxvq_p_s8((int8_t)n, a8, p8)  vmaxvq_s32(n, a32)  vmaxvq_u32((uint32_t)n, au32)
vldrbq_s8(s8)  vldrbq_z_s8(s8, p8)  vldrbq_u8(u8)  vldrbq_z_u8(u8, p8)  vldrbq_s16(s8)  vldrbq_z_s16(s8, p16)
vldrbq_s32(s8)  vldrbq_z_s32(s8, p32)  vldrhq_s16(s16)  vldrhq_z_s16(s16, p16)  vldrhq_u16(u16)
vldrhq_z_u16(u16, p16)  vldrhq_s32(s16)  vldrhq_z_s32(s16, p32)  vldrhq_u32(u16)  vldrwq_s32(s32)
vldrwq_z_s32(s32, p32)  vldrwq_u32(u32)  vldrwq_f32(floats)  vldrwq_z_f32(floats, p32)
vldrbq_gather_offset_u8(u8, o8)  vldrbq_gather_offset_z_u8(u8, o8, p8)  vldrbq_gather_offset_s16(s8, o16)
vldrbq_gather_offset_z_s16(s8, o16, p16)  vldrhq_gather_shifted_offset_s16(s16, o16)
vldrhq_gather_shifted_offset_s32(s16, o32)  vldrhq_gather_shifted_offset_u32(u16, o32)
vldrwq_gather_offset_s32(s32, vshlq_n_u32_by_2(o32))  vldrwq_gather_shifted_offset_z_s32(s32, o32, p32)
vldrwq_gather_base_s32(vaddq_n_u32(vshlq_n_u32_by_2(o32), (uint32_t)(uintptr_t)s32), 4)
"""
STORES = """
vstrbq_s8(t8, a8)  vstrbq_p_s8(t8, a8, p8)  vstrbq_u8(tu8, au8)  vstrbq_p_u8(tu8, au8, p8)
vstrbq_s16(t8, a16)  vstrbq_p_s16(t8, a16, p16)  vstrbq_s32(t8, a32)  vstrbq_p_s32(t8, a32, p32)
vstrhq_s16(t16, a16)  vstrhq_p_s16(t16, a16, p16)  vstrhq_u16(tu16, au16)
vstrhq_p_u16(tu16, au16, p16)  vstrhq_s32(t16, a32)  vstrhq_p_s32(t16, a32, p32)
vstrwq_s32(t32, a32)  vstrwq_p_s32(t32, a32, p32)  vstrwq_f32(tf, af)
vstrwq_p_f32(tf, af, p32)  vst1q_s32(t32, a32)  vst4q_s8(t8, four)  vstrbq_scatter_offset_s16(t8, o16, a16)
vstrbq_scatter_offset_p_s16(t8, o16, a16, p16)  vstrbq_scatter_offset_s32(t8, o32, a32)
vstrwq_scatter_shifted_offset_p_s32(t32, vandq_u32(o32, vdupq_n_u32(15)), a32, p32)
"""
# It has no value of its own.
UNTESTED = {"vuninitializedq_s16"}

PROGRAM = """
#include "helium.h"
#include <arm_mve.h>
#include <string.h>

static uint32x4_t vshlq_n_u32_by_2(uint32x4_t offsets)
{
    return vreinterpretq_u32_s32(vshlq_n_s32(vreinterpretq_s32_u32(offsets), 2));
}

void helium_init(helium_context *context) { context->calls = 0; }

/* Numbers of all magnitudes, and no NaN: their bits differ between machines. */
static float number(const uint8_t *bytes)
{
    float value = (float)((bytes[0] << 8 | bytes[1]) - 32768);

    for (int i = bytes[2] & 31; i > 0; i--) {
        value *= bytes[3] & 1 ? 4.0f : 0.25f;
    }
    return value;
}

void helium_run(helium_context *context, const int8_t *input, int8_t *output)
{
    int32_t memory[64], target[64];
    float floats[64];
    int32_t numbers[4], n, m;
    const uint8_t *const bytes = (const uint8_t *)input;
    const int32_t shift = bytes[0] % 81 - 40;
    const mve_pred16_t p8 = vctp8q(bytes[1] % 20u);
    const mve_pred16_t p16 = vctp16q(bytes[2] % 10u);
    const mve_pred16_t p32 = vctp32q(bytes[3] % 6u);

    memcpy(memory, input, sizeof memory);
    memcpy(&n, bytes + 4, 4);
    memcpy(&m, bytes + 8, 4);
    for (int i = 0; i < 64; i++) {
        floats[i] = number(bytes + 4 * i);
    }
    for (int i = 0; i < 4; i++) {
        numbers[i] = bytes[16 + i] % 81 - 40;
    }

    const int8_t *const s8 = (const int8_t *)memory + 1;
    const uint8_t *const u8 = (const uint8_t *)memory + 3;
    const int16_t *const s16 = (const int16_t *)memory + 1;
    const uint16_t *const u16 = (const uint16_t *)memory + 3;
    const int32_t *const s32 = memory + 1;
    const uint32_t *const u32 = (const uint32_t *)memory + 2;
    const int8x16_t a8 = vldrbq_s8(s8 + 32), b8 = vldrbq_s8(s8 + 80);
    const uint8x16_t au8 = vldrbq_u8(u8 + 32), bu8 = vldrbq_u8(u8 + 80);
    const int16x8_t a16 = vldrhq_s16(s16 + 16), b16 = vldrhq_s16(s16 + 40);
    const uint16x8_t au16 = vldrhq_u16(u16 + 16);
    const int32x4_t a32 = vldrwq_s32(s32 + 8), b32 = vldrwq_s32(s32 + 20), shifts = vldrwq_s32(numbers);
    const uint32x4_t au32 = vldrwq_u32(u32 + 8), bu32 = vldrwq_u32(u32 + 20);
    const float32x4_t af = vldrwq_f32(floats + 8), bf = vldrwq_f32(floats + 20);
    const float f = floats[30];
    const uint32x4_t o32 = vandq_u32(au32, vdupq_n_u32(31));
    uint16_t offsets[8], halves[16];
    uint8_t quarters[16];

    for (int i = 0; i < 16; i++) {
        offsets[i & 7] = bytes[48 + i] & 63u;
        halves[i] = (uint16_t)((bytes[80 + i] << 8 | bytes[96 + i]) & 0xbfff); /* finite */
        quarters[i] = bytes[64 + i] & 63u;
    }

    const uint16x8_t o16 = vldrhq_u16(offsets);
    const float16x8_t ah = vreinterpretq_f16_u16(vldrhq_u16(halves));
    const float16x8_t bh = vreinterpretq_f16_u16(vldrhq_u16(halves + 8));
    const uint8x16_t o8 = vldrbq_u8(quarters);
    const int8x16x4_t four = {{a8, b8, a8, b8}};
    int8_t *const t8 = (int8_t *)target + 1;
    uint8_t *const tu8 = (uint8_t *)target + 1;
    int16_t *const t16 = (int16_t *)target + 1;
    uint16_t *const tu16 = (uint16_t *)target + 1;
    int32_t *const t32 = target + 1;
    float *const tf = (float *)target + 1;

    (void)u32;
/*cases*/
    context->calls++;
}
"""
HEADER = """
#ifndef HELIUM_H
#define HELIUM_H
#include <stdint.h>
#define HELIUM_INPUT_0_SIZE %d
#define HELIUM_OUTPUT_0_SIZE %d
typedef struct helium_context {
    int32_t calls;
} helium_context;
void helium_init(helium_context *context);
void helium_run(helium_context *context, const int8_t *input, int8_t *output);
#endif
"""
MAIN = """
#include "helium.h"
#include <stdio.h>

int main(void)
{
    static int8_t input[%d], output[%d];
    helium_context context;

    helium_init(&context);
    while (fread(input, 1, sizeof input, stdin) == sizeof input) {
        helium_run(&context, input, output);
        fwrite(output, 1, sizeof output, stdout);
    }
    return 0;
}
"""


def _expressions(text: str) -> list[str]:
    return re.split(r"\s\s+|\n", text.strip())


def _sources() -> ModelSources:
    """A program whose outputs are the results of every expression."""
    lines: list[str] = []
    size = 0
    for expression in _expressions(VALUES):
        lines.append(
            f"    {{ const __typeof__({expression}) r = {expression};"
            f" memcpy(output + {size}, &r, sizeof r); }}"
        )
        size += 16
    for expression in _expressions(STORES):
        lines.append(
            f"    memset(target, 0, sizeof target); {expression}; memcpy(output + {size}, target, 128);"
        )
        size += 128
    return ModelSources(
        name="helium",
        files={
            "helium.h": HEADER % (INPUT_BYTES, size),
            "helium.c": PROGRAM.replace("/*cases*/", "\n".join(lines)),
        },
        inputs=(TensorSpec(0, "int8_t", INPUT_BYTES, INT8),),
        outputs=(TensorSpec(0, "int8_t", size, INT8),),
        layers=(),
        io="caller",
    )


@pytest.mark.slow
def test_models_of_intrinsics(tmp_path: Path) -> None:
    """The same program gives the same bytes here, under sanitizers, as on a simulated core."""
    need_tools(*CROSS_TOOLS)
    need_sanitizers("gcc", "-m32")
    sources = _sources()
    random = np.random.default_rng(1)
    calls = [random.integers(-128, 128, INPUT_BYTES).astype(np.int8) for _ in range(CALLS)]
    calls += [np.full(INPUT_BYTES, value, np.int8) for value in (-128, -1, 0, 127)]
    calls.append(np.tile(np.array([0, 0, 0, -128], np.int8), INPUT_BYTES // 4))
    size = sources.outputs[0].length
    for name, text in {**sources.files, "main.c": MAIN % (INPUT_BYTES, size)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = ["gcc", *host_cores.FLAGS, *host_cores.SANITIZERS, "-Wno-psabi", f"-I{host_cores.MODELS}"]
    built = subprocess.run(
        [*command, "helium.c", "main.c", "-lm", "-o", "check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[:4000]
    inputs = b"".join(call.tobytes() for call in calls)
    done = subprocess.run(["./check"], cwd=tmp_path, input=inputs, capture_output=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr[:4000]
    core = target.load("cortex-m55")
    assert core.board
    simulated = run(sources, find(core.board), core.cpu_flags, [(call,) for call in calls], optimize="-O0")
    names = [each for each in _expressions(VALUES) for _ in range(16)]
    names += [each for each in _expressions(STORES) for _ in range(128)]
    for call, (wanted,) in enumerate(simulated.outputs):
        found = np.frombuffer(done.stdout, np.int8, size, call * size)
        wrong = sorted({names[index] for index in np.flatnonzero(found != wanted)})
        assert not wrong, (call, wrong)


def test_every_intrinsic_is_tested() -> None:
    """Every intrinsic that templates name is in the program above, which compiles only if it has a model."""
    pattern = re.compile(r"\bv[a-z0-9]+q(?:_[a-z0-9]+)*_[suf](?:8|16|32)\b|\bvctp\d+q\b")
    texts = [path.read_text(encoding="utf-8") for path in template_dir().rglob("*.j2")]
    used = {name for text in texts for name in pattern.findall(text)}
    assert len(used) > 100
    tested = set(pattern.findall(VALUES + STORES + PROGRAM)) | UNTESTED
    assert not used - tested


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("chunk", sampled(range(CHUNKS), CHUNKS))
def test_bundled_models(chunk: int) -> None:
    """Programs with new functions: no report of a sanitizer, and the reference's numbers."""
    need_tools(ARM_GCC)
    need_sanitizers("gcc", "-m32")
    paths = sorted(sweep.MODELS.rglob("*.tflite"))[chunk::CHUNKS]
    checked = 0
    for source in sweep.sources(paths, target.load("cortex-m55"), ["balanced"]):
        host_cores.assert_exact(source.program, RUNS)
        checked += 1
    assert checked > len(paths) // 8


def test_a_model() -> None:
    need_sanitizers("gcc", "-m32")
    path = sweep.MODELS / "made" / "dscnn_bn_int8.tflite"
    host_cores.assert_exact(compile_file(path, target.load("cortex-m55")), RUNS)
