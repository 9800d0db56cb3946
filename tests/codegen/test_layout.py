"""Comments and line breaks of generated text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.codegen.layout import (
    LINE_WIDTH,
    comment_block,
    comment_text,
    label_text,
    unspaced,
    without_comments,
    wrap_code,
)


@given(st.text())
def test_comment_text_cannot_leave_its_comment(text: str) -> None:
    plain = comment_text(text)
    assert plain.isascii() and plain.isprintable()
    assert "*/" not in plain and "/*" not in plain and "??" not in plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a*/b", "a* /b"), ("/*/", "/ * /"), ("\u65e5\u672c/x", "?/x"), ("a??/\nb", "a?/?b"), ("", "")],
)
def test_comment_text(text: str, plain: str) -> None:
    assert comment_text(text) == plain


def test_long_labels_keep_their_ends() -> None:
    label = label_text("first/" + "x;" * 200 + "/last")
    assert len(label) <= 80 and label.startswith('"first/') and label.endswith('/last"')


@given(st.lists(st.text(st.characters(codec="ascii"), max_size=300), min_size=1, max_size=3))
def test_comment_blocks_are_narrow(lines: list[str]) -> None:
    block = comment_block([comment_text(line) for line in lines])
    assert block.startswith("/*") and block.endswith("*/") and block.count("*/") == 1
    assert all(len(line) <= LINE_WIDTH - 4 for line in block.split("\n"))


def test_lines_break_at_the_outermost_commas() -> None:
    name = "x" * 26
    assert wrap_code(
        f"static void {name}(const {name}_layer *layer, const int8_t *input, int8_t *output)"
    ) == (f"static void {name}(const {name}_layer *layer, const int8_t *input,\n{' ' * 39}int8_t *output)")
    assert wrap_code(f"    {name}(layer, {name}({name}, 1, 2), &third, 4);") == (
        f"    {name}(layer, {name}({name}, 1, 2), &third,\n{' ' * 31}4);"
    )


def test_a_parenthesis_breaks_where_no_comma_fits() -> None:
    name = "x" * 60
    assert wrap_code(f"    static void {name}(const {name} *layer, int32_t a)") == (
        f"    static void {name}(\n        const {name} *layer, int32_t a)"
    )


def test_arguments_that_find_no_room_behind_the_parenthesis_go_below_it() -> None:
    name, offset = "x" * 40, "y" * 50
    address = f"(int8_t *)ARENA({offset})"
    assert wrap_code(f"    {name}(&layer, table, {address}, {address}, 1);") == (
        f"    {name}(\n        &layer, table, {address},\n        {address}, 1);"
    )


def test_conditions_break_behind_their_operators() -> None:
    name = "x" * 45
    assert wrap_code(f"    bool a = {name} && f({name}, {name});") == (
        f"    bool a = {name} &&\n        f({name}, {name});"
    )
    assert wrap_code(f"    if ({name} || {name} || y == z) {{") == (
        f"    if ({name} || {name} ||\n        y == z) {{"
    )


def test_initialisers_break_behind_commas() -> None:
    name = "x" * 50
    broken = f"    row a = {{{name},\n{' ' * 13}{name}, b}};"
    assert wrap_code(f"    row a = {{{name}, {name}, b}};") == broken


def test_comments_break_at_spaces() -> None:
    words = " ".join(["word"] * 30)
    broken = wrap_code(f"    /* {words} */\n     * {words}").split("\n")
    assert broken[0] == "    /*" and broken[1].startswith("     * word") and broken[3] == "     */"
    assert all(line.startswith("     * word") for line in broken[4:])


def test_a_long_line_of_a_comment_flows_into_the_next_one() -> None:
    words = " ".join(["word"] * 25)
    wrapped = wrap_code(f"/*\n * {words}\n * next\n * last.\n *\n * Other.\n */")
    first, second = "word " * 21, "word " * 4
    assert wrapped == f"/*\n * {first.rstrip()}\n * {second}next last.\n *\n * Other.\n */"
    tags = f"/**\n * @brief {words}\n * next.\n * @param x Number.\n * @return Result.\n */"
    assert (
        wrap_code(tags).split("\n")[-4:] == wrap_code(tags.replace("\n * next.", " next.")).split("\n")[-4:]
    )
    assert wrap_code(tags).endswith(" next.\n * @param x Number.\n * @return Result.\n */")
    short = "/*\n * word\n * next\n *     * indented\n */"
    assert wrap_code(short) == short


def test_a_remark_moves_where_only_it_makes_a_line_long() -> None:
    words = " ".join(["word"] * 20)
    assert wrap_code(f"    int32_t field; /* {words} */") == f"    /* {words} */\n    int32_t field;"


def test_preprocessor_lines_stay() -> None:
    line = f'#error "{"x" * 120}, {"x" * 120}"'
    assert wrap_code(line) == line


identifiers = st.text("abcdefgh_", min_size=1, max_size=50)
expressions = st.recursive(
    identifiers,
    lambda inner: st.builds(
        lambda name, arguments: f"{name}({', '.join(arguments)})", identifiers, st.lists(inner, max_size=4)
    ),
    max_leaves=12,
)


@given(expressions, st.integers(0, 5))
def test_only_white_space_changes(code: str, depth: int) -> None:
    wrapped = wrap_code(" " * (4 * depth) + code + ";")
    assert re.sub(r"\s+", "", wrapped) == re.sub(r"\s+", "", code + ";")
    for line in wrapped.split("\n"):
        assert len(line) <= LINE_WIDTH or not re.search(r"[,(](?=.*[a-h])", line[: LINE_WIDTH - 1].rstrip())


def test_code_without_comments_and_blanks() -> None:
    code = "int  a /* one */ = b /* two /* three\n */ - 3;\nreturn  a [ 0 ];"
    assert unspaced(without_comments(code)) == "int a=b-3;return a[0];"


def test_a_comment_or_a_string_is_not_broken() -> None:
    remark, text = f"/* {'one, ' * 8}*/", '"' + "two, (" * 8 + '"'
    lines = wrap_code(f"    call(first, {remark}, {text}, last, again, and, once, more);").split("\n")
    assert len(lines) > 1 and any(remark in line for line in lines) and any(text in line for line in lines)
