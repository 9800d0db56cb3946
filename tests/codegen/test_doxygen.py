"""Public headers have Doxygen comments: every function is described with all of its parameters."""

from __future__ import annotations

import re

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.options import Options
from tests.codegen import graphs

FUNCTION = re.compile(
    r"^(?:static inline )?[a-z]\w*(?: \w+)* \*?(?P<name>\w+)\((?P<parameters>[^;{]*?)\)[;\n]", re.M
)


def check(text: str) -> list[str]:
    """The functions of a header, each with a brief, all parameters in order, and its result."""
    names: list[str] = []
    for found in FUNCTION.finditer(text):
        name = found["name"]
        names.append(name)
        before = text[: found.start()]
        comment = before[before.rfind("/**") :]
        assert comment.startswith("/**\n * @brief ") and comment.endswith("\n */\n"), name
        assert all(line.startswith(" *") for line in comment.splitlines()[1:]), name
        parameters = re.findall(r"(\w+)(?:,|$)", found["parameters"])
        assert re.findall(r"@param (\w+) \w", comment) == [each for each in parameters if each != "void"], (
            name
        )
        returns = not re.match(r"(static inline )?void \w", found[0])
        assert ("@return " in comment) == returns, name
    return names


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (graphs.accumulator(), Options(io="caller", step=True)),
        (graphs.two_inputs(), Options(memory="split", step=True, taps=True, align=32)),
        (graphs.two_inputs(), Options(weights="blob")),
    ],
)
def test_functions_are_documented(graph: Graph, options: Options) -> None:
    program = compile_graph(graph, target.load("cortex-m4"), options)
    files = emit(program)
    header, helpers = files[f"{program.name}.h"], files[f"{program.name}_helpers.h"]
    for text in (header, helpers):
        assert "/**\n * @file\n * @brief " in text
        assert text.count("@{") == text.count("@}")
    names = check(header)
    assert {f"{program.name}_{each}" for each in ("init", "reset", "run")} <= set(names)
    assert check(helpers)
