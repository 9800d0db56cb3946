"""A hand-written model in the form of the generated ones, and the cores to run it on."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.simulate.boards import BOARDS, SimulatedBoard
from microfold.simulate.sources import LayerSpec, LayerTensor, ModelSources, TensorSpec
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
INT8 = np.dtype(np.int8)
LENGTH = 32

# Compiler flags for each board's core, and for a core of an older architecture level on the same board.
CORES = {
    "cortex-m0plus": ("mps2-an385", ("-mcpu=cortex-m0plus", "-mthumb")),
    "cortex-m3": ("mps2-an385", ("-mcpu=cortex-m3", "-mthumb")),
    "cortex-m4": ("mps2-an386", ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")),
    "cortex-m7": ("mps2-an500", ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")),
    "cortex-m33": ("mps2-an505", ("-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")),
    "cortex-m55": ("mps3-an547", ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard")),
    "cortex-m85": ("mps3-an547", ("-march=armv8.1-m.main+dsp+mve.fp+fp.dp", "-mthumb", "-mfloat-abi=hard")),
}

HEADER = """
#ifndef TOY_H
#define TOY_H
#include <stdint.h>
#define TOY_INPUT_0_SIZE 32
#define TOY_OUTPUT_0_SIZE 32
typedef struct toy_context {
    int8_t arena[96];
    int32_t state[1];
} toy_context;
void toy_init(toy_context *context);
int8_t *toy_input_0(toy_context *context);
const int8_t *toy_output_0(const toy_context *context);
void toy_run(toy_context *context);
#endif
"""

# Layer 0 adds 3 to the input, layer 1 adds the number of earlier calls, which is the state.
BODY = """
#include "toy.h"
#ifdef TOY_HOOKS
#include TOY_HOOKS
#endif
#ifndef TOY_LAYER_DONE
#define TOY_LAYER_DONE(context, layer) ((void)0)
#endif
static const int8_t toy_bias[1] = {3};
void toy_init(toy_context *context) { context->state[0] = 0; }
int8_t *toy_input_0(toy_context *context) { return &context->arena[0]; }
const int8_t *toy_output_0(const toy_context *context) { return &context->arena[64]; }
void toy_run(toy_context *context)
{
    for (int i = 0; i < 32; i++) {
        context->arena[32 + i] = (int8_t)(context->arena[i] + toy_bias[0]);
    }
    /*layer 0*/
    TOY_LAYER_DONE(context, 0);
    for (int i = 0; i < 32; i++) {
        context->arena[64 + i] = (int8_t)(context->arena[32 + i] + context->state[0]);
    }
    /*layer 1*/
    context->state[0]++;
    TOY_LAYER_DONE(context, 1);
}
"""

CALLER_HEADER = """
#ifndef TOY_H
#define TOY_H
#include <stdint.h>
#define TOY_INPUT_0_SIZE 32
#define TOY_INPUT_1_SIZE 8
#define TOY_OUTPUT_0_SIZE 32
typedef struct toy_context {
    int8_t arena[16];
} toy_context;
void toy_init(toy_context *context);
void toy_run(toy_context *context, const int8_t *input_0, const int16_t *input_1, int8_t *output_0);
#endif
"""

CALLER_BODY = """
#include "toy.h"
#ifdef TOY_HOOKS
#include TOY_HOOKS
#endif
#ifndef TOY_LAYER_DONE
#define TOY_LAYER_DONE(context, layer) ((void)0)
#endif
void toy_init(toy_context *context) { context->arena[0] = 0; }
void toy_run(toy_context *context, const int8_t *input_0, const int16_t *input_1, int8_t *output_0)
{
    for (int i = 0; i < 32; i++) {
        output_0[i] = (int8_t)(input_0[i] + input_1[i % 4]);
    }
    TOY_LAYER_DONE(context, 0);
    (void)context;
}
"""


def toy(layer_0: str = "", layer_1: str = "", prologue: str = "") -> ModelSources:
    """The model, with C text appended to each layer."""
    body = prologue + BODY.replace("/*layer 0*/", layer_0).replace("/*layer 1*/", layer_1)
    return ModelSources(
        name="toy",
        files={"toy.h": HEADER, "toy.c": body},
        inputs=(TensorSpec(0, "int8_t", LENGTH, INT8),),
        outputs=(TensorSpec(0, "int8_t", LENGTH, INT8),),
        layers=(
            LayerSpec(0, "add", (LayerTensor(LENGTH, INT8, 32),)),
            LayerSpec(
                1, "count", (LayerTensor(LENGTH, INT8, 64), LayerTensor(1, np.dtype("<i4"), 0, "state"))
            ),
        ),
    )


INNER = """
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 32; i++) {
            context->arena[32 + i] = (int8_t)(context->arena[i] + toy_bias[0] + k);
        }
        TOY_INNER_DONE(context, 0);
    }
    if (context->state[0] == 1) {
        TOY_INNER_DONE(context, 1);
    }
"""


def inner_toy() -> ModelSources:
    """Layer 0 runs another one five times, and one more in the second call only."""
    hook = "#ifndef TOY_INNER_DONE\n#define TOY_INNER_DONE(context, layer) ((void)0)\n#endif\n"
    model = toy(INNER)
    body = model.files["toy.c"].replace("static const", hook + "static const", 1)
    return replace(
        model,
        files={**model.files, "toy.c": body},
        inner=tuple(LayerSpec(i, f"inner{i}", (LayerTensor(LENGTH, INT8, 32),)) for i in range(2)),
    )


def caller_toy() -> ModelSources:
    """A model whose caller hands in the buffers."""
    return ModelSources(
        name="toy",
        files={"toy.h": CALLER_HEADER, "toy.c": CALLER_BODY},
        inputs=(TensorSpec(0, "int8_t", LENGTH, INT8), TensorSpec(1, "int16_t", 4, np.dtype("<i2"))),
        outputs=(TensorSpec(0, "int8_t", LENGTH, INT8),),
        layers=(LayerSpec(0, "add", (LayerTensor(LENGTH, INT8, 0, "caller"),)),),
        io="caller",
    )


@pytest.fixture
def simulation_tools() -> None:
    """Skips without the cross compiler and QEMU; in CI, where they must be, the test fails instead."""
    need_tools(*CROSS_TOOLS)


# One core of each kind of instruction set is enough for a round of all tests, the first for a quick one.
KINDS = ("cortex-m4", "cortex-m0plus", "cortex-m55")


@pytest.fixture(
    params=[
        *quick(KINDS),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in CORES if name not in KINDS),
    ]
)
def core(request: pytest.FixtureRequest, simulation_tools: None) -> tuple[SimulatedBoard, tuple[str, ...]]:  # noqa: ARG001
    """Board and compiler flags of each core."""
    machine, flags = CORES[request.param]
    return BOARDS[machine], flags


@pytest.fixture
def cortex_m4(simulation_tools: None) -> tuple[SimulatedBoard, tuple[str, ...]]:  # noqa: ARG001
    """Board and compiler flags of one core, for what does not depend on it."""
    machine, flags = CORES["cortex-m4"]
    return BOARDS[machine], flags
