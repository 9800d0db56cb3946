"""Layout of generated text: comments, and lines of limited width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from microfold.codegen.names import WORD

LINE_WIDTH = 110
LABEL_WIDTH = 76


def comment_text(text: str) -> str:
    """Return text that is safe in a C comment: printable ASCII, without comment delimiters or trigraphs."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    while "??" in plain:
        plain = plain.replace("??", "?")
    return plain.replace("*/", "* /").replace("/*", "/ *")


def string_text(text: str) -> str:
    """Return text that is safe between double quotes in C, even if its line is broken."""
    return comment_text(text).replace("\\", "/").replace('"', "'")


def label_text(text: str) -> str:
    """Return a name from the model, quoted; the middle of a long name is omitted."""
    plain = comment_text(text)
    if len(plain) > LABEL_WIDTH:
        half = (LABEL_WIDTH - 5) // 2
        plain = f"{plain[:half]} ... {plain[-half:]}"
    return f'"{plain}"'


def comment_block(lines: Iterable[str], start: str = "/*") -> str:
    """Return a C comment in which each of the lines starts a new line.

    The lines must be safe already (`comment_text`); the block can be indented by up to 8 columns.

    Args:
        start: mark of the comment, ``/*``, or ``/**`` for Doxygen.
    """
    wrapped = [
        part
        for line in lines
        for part in textwrap.wrap(line, LINE_WIDTH - 11, break_on_hyphens=False) or [""]
    ]
    if len(wrapped) == 1:
        return f"{start} {wrapped[0]} */"
    return "\n".join([start, *(f" * {line}".rstrip() for line in wrapped), " */"])


def doc_block(lines: Iterable[str]) -> str:
    """Return a Doxygen comment; see `comment_block`."""
    return comment_block(lines, "/**")


def doc_group(lines: Sequence[str]) -> str:
    """Return the start of a Doxygen group of macros, whose name is the first line; ``@}`` ends it."""
    return doc_block([f"@name {lines[0]}", *lines[1:], "@{"])


def few_blank_lines(text: str) -> str:
    """Return the text with consecutive blank lines reduced to one."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def without_comments(code: str) -> str:
    """Return C code with a blank in place of each comment."""
    first, *rest = code.split("/*")
    return " ".join([first, *(part.partition("*/")[2] for part in rest)])


def unspaced(code: str) -> str:
    """Return C code on one line, with blanks only between words."""
    parts: list[str] = []
    last = ""
    for part in code.split():
        if last[-1:] in WORD and part[0] in WORD and last:
            parts.append(" ")
        parts.append(part)
        last = part
    return "".join(parts)


def wrap_code(text: str) -> str:
    """Return C code with long lines broken: code after commas, aligned after the open parenthesis.

    A comment is refilled from a long line to the end of its paragraph. A comment after code that is short
    enough without it moves to a separate line before the code.

    Lines get too long because names in templates are shorter than the names that replace them.
    """
    return "\n".join(part for line in _filled(text.split("\n")) for part in _broken(line))


def _filled(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with the rest of a comment's paragraph joined to a line that is too long."""
    paragraph = ""
    for line in lines:
        if paragraph and _is_text(line) and not _is_tag(line):
            paragraph += line.lstrip()[1:]
            continue
        if paragraph:
            yield paragraph
            paragraph = ""
        if len(line) > LINE_WIDTH and _is_text(line):
            paragraph = line
        else:
            yield line
    if paragraph:
        yield paragraph


def _is_text(line: str) -> bool:
    """Return whether a line continues a comment's paragraph: one blank after the star; lists have more."""
    star, _, text = line.lstrip(" ").partition(" ")
    return star == "*" and text[:1] not in ("", " ") and not line.endswith("*/")


def _is_tag(line: str) -> bool:
    """Return whether a line of a comment starts a paragraph of Doxygen, e.g. ``* @param``."""
    return line.lstrip(" *").startswith("@")


def _broken(line: str) -> Iterator[str]:
    stripped = line.lstrip()
    if len(line) <= LINE_WIDTH or stripped.startswith("#") or line.endswith("\\"):
        return iter([line])
    indent = line[: len(line) - len(stripped)]
    if stripped.startswith("/*") and stripped.endswith("*/") and stripped.count("*/") == 1:
        start = "/**" if stripped.startswith("/** ") else "/*"
        block = comment_block([stripped[len(start) : -2].strip()], start)
        return iter(textwrap.indent(block, indent).split("\n"))
    if stripped.startswith(("/* ", "* ")) and "*/" not in stripped:
        star = indent + (" * " if stripped.startswith("/*") else "* ")
        return iter(textwrap.wrap(line, LINE_WIDTH, subsequent_indent=star, break_on_hyphens=False))
    code, remark = _split_remark(line)
    if remark and len(code) <= LINE_WIDTH:
        return chain(_broken(indent + remark), [code])
    return iter(_broken_code(line, len(indent) + 4))


def _split_remark(line: str) -> tuple[str, str]:
    """Return a statement or struct field, and the comment after it; empty if the line has none."""
    statement, mark, remark = line.rpartition("/*")
    code = statement.rstrip(" ")
    behind = mark and code != statement and code.endswith(";")
    is_last = remark.endswith("*/") and remark.count("*/") == 1
    return (code, mark + remark) if behind and is_last else (line, "")


def _broken_code(line: str, indent: int) -> list[str]:
    """Break a long line; `indent` is the indentation of continuation lines without room for alignment.

    If one continuation line has no room, all of them use `indent`. Otherwise the lines after it would look as
    if they were outside the parenthesis.
    """
    code = _blanked(line)
    aligned = list(_filled_lines(line, code, indent))
    columns = [len(each) - len(each.lstrip()) for each in aligned[1:]]
    outermost = code.find("(") + 1
    if indent not in columns or max(columns) == indent or not outermost:
        return aligned
    margin = " " * indent
    rest = line[outermost:].lstrip()
    code = margin + code[len(line) - len(rest) :]
    return [line[:outermost], *_filled_lines(margin + rest, code, indent, (indent - 1,))]


def _filled_lines(line: str, code: str, indent: int, opened: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield lines of at most `LINE_WIDTH`; `opened`: columns of the parentheses open at the first of them."""
    while len(line) > LINE_WIDTH:
        breaks = list(_breaks(code, opened))
        # The last comma, && or || in the fewest parentheses, else the outermost parenthesis.
        between = [found for found in breaks if line[found[0] - 1] != "("]
        if not breaks:
            break
        position, opened = min(between or breaks, key=lambda found: (len(found[1]), -found[0]))
        yield line[:position].rstrip()
        rest = line[position:].lstrip()
        code = code[len(line) - len(rest) :]
        column = opened[-1] + 1 if opened else indent
        if not between or (column + len(rest) > LINE_WIDTH and column > LINE_WIDTH // 2):
            column = indent
        line, code = " " * column + rest, " " * column + code
        opened = (*opened[:-1], column - 1) if opened else ()
    yield line


def _blanked(line: str) -> str:
    """Return a line with comments and strings replaced by underscores."""
    parts: list[str] = []
    done = 0
    while True:
        starts = [at for at in (line.find(mark, done) for mark in ("/*", '"')) if at >= 0]
        start = min(starts, default=len(line))
        if start == len(line):
            return "".join([*parts, line[done:]])
        begin, finish = ('"', '"') if line[start] == '"' else ("/*", "*/")
        end = line.find(finish, start + len(begin)) + len(finish)
        if end < len(finish):  # without an end it is no string or comment: skip one character
            end = start + 1
            parts.append(line[done:end])
        else:
            parts += [line[done:start], "_" * (end - start)]
        done = end


def _breaks(code: str, opened: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield positions after commas, parentheses, && and ||, with the columns of the parentheses open there.

    Positions beyond the line width are omitted.
    """
    end = len(code.rstrip(" )"))
    for position, character in enumerate(code[:LINE_WIDTH]):
        if character in "([{":
            opened = (*opened, position)
        elif character in ")]}" and opened:
            opened = opened[:-1]
        if character in "(," and opened and position + 1 < end:
            yield position + 1, opened
        if character == " " and position + 3 <= LINE_WIDTH and code.startswith((" && ", " || "), position):
            yield position + 3, opened
