"""Executes the code cells of a notebook in order, and records what they show."""

from __future__ import annotations

import ast
import io
from contextlib import redirect_stdout
from typing import Any

Json = dict[str, Any]


def execute(notebook: Json) -> Json:
    """Return the notebook with the outputs that its code cells have now, in a namespace of their own."""
    names: dict[str, object] = {"__name__": "__main__"}
    cells: list[Json] = []
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        count += 1
        outputs = _run("".join(cell["source"]), count, names)
        cells.append({**cell, "execution_count": count, "outputs": outputs})
    return {**notebook, "cells": cells}


def _run(source: str, count: int, names: dict[str, object]) -> list[Json]:
    """Run a cell. The value of a last expression is shown, unless it ends with a semicolon."""
    module = ast.parse(source)
    last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value: object = None
    with redirect_stdout(printed):
        exec(compile(module, f"<cell {count}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    outputs: list[Json] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None and not source.rstrip().endswith(";"):
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        html = getattr(value, "_repr_html_", None)
        if html is not None:
            data = {"text/html": [html()], **data}
        outputs.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def without_html(notebook: Json) -> Json:
    """Return the notebook without HTML: it states sizes of code, which depend on the compiler."""
    cells: list[Json] = []
    for cell in notebook["cells"]:
        outputs = [
            {**each, "data": {"text/plain": each["data"]["text/plain"]}} if "data" in each else each
            for each in cell.get("outputs", ())
        ]
        cells.append({**cell, "outputs": outputs} if "outputs" in cell else cell)
    return {**notebook, "cells": cells}
