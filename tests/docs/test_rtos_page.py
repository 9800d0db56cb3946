"""The C of the page on operating systems compiles against declarations of what it uses of FreeRTOS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.needs import need_tools

ROOT = Path(__file__).resolve().parents[2]
SINE = ROOT / "examples" / "sine" / "sine.tflite"  # small, and compiled as `person`
PAGE = (ROOT / "docs" / "rtos.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", PAGE, re.M | re.S))

KERNEL = """
#include <stddef.h>
#include <stdint.h>

typedef void *QueueHandle_t;
typedef void *TaskHandle_t;
typedef long BaseType_t;
typedef unsigned long UBaseType_t;
typedef uint32_t TickType_t;
typedef uint32_t StackType_t;
typedef struct { int unused; } StaticTask_t;
#define pdFALSE ((BaseType_t)0)
#define portMAX_DELAY ((TickType_t)0xffffffffu)
BaseType_t xQueueReceive(QueueHandle_t queue, void *item, TickType_t ticks);
BaseType_t xQueueSend(QueueHandle_t queue, const void *item, TickType_t ticks);
uint32_t ulTaskNotifyTake(BaseType_t clear, TickType_t ticks);
BaseType_t xTaskNotifyGive(TaskHandle_t task);
TaskHandle_t xTaskCreateStatic(void (*code)(void *), const char *name, uint32_t stack_words, void *argument,
                               UBaseType_t priority, StackType_t *stack, StaticTask_t *task);
void classify_task(void *queues);
"""


@pytest.mark.parametrize(("source", "io"), [("task.c", "arena"), ("tasks.c", "caller")])
def test_the_tasks_compile(source: str, io: str, tmp_path: Path) -> None:
    need_tools("cc")
    program = compile_file(SINE, target.load("cortex-m4"), Options(io=io), name="person")
    kernel = {"FreeRTOS.h": KERNEL, "task.h": "", "queue.h": ""}
    write(tmp_path, emit(program) | FILES | kernel)
    run(["cc", *STRICT, "-fsyntax-only", f"-I{tmp_path}", tmp_path / source])
