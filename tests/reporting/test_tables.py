"""Tables fit where they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from microfold.reporting.tables import Table, TableColumn, number


def table() -> Table:
    columns = [
        number("#"),
        TableColumn("layer"),
        TableColumn("kernel", rank=1),
        TableColumn("output", rank=2),
    ]
    found = Table("", [*columns, number("est. instructions"), TableColumn("note", rank=3)])
    found.add("0", "batch_normalization", "s8_depthwise_conv2d__dsp_row", "int8[1, 8, 8, 16]", "9,216", "")
    found.add("10", "dense", "s8_add", "int8[1]", "1,234,567", "of 2^31 in dense: no overflow possible")
    return found


def test_whole_lines() -> None:
    layout = table().lay_out(None)
    assert layout.left_out == ()
    assert layout.header == (
        " #  layer                kernel                        output                     est.  note",
        "                                                                          instructions",
    )
    assert layout.body == (
        " 0  batch_normalization  s8_depthwise_conv2d__dsp_row  int8[1, 8, 8, 16]         9,216",
        "10  dense                s8_add                        int8[1]               1,234,567  "
        "of 2^31 in dense: no overflow possible",
    )


def test_names_are_broken_where_they_have_joints() -> None:
    layout = table().lay_out(70)
    assert layout.left_out == ("note",)
    assert layout.body == (
        " 0  batch_            s8_depthwise_     int8[1, 8, 8,            9,216",
        "    normalization     conv2d__dsp_row   16]",
        "10  dense             s8_add            int8[1]              1,234,567",
    )


def test_the_least_important_columns_go_first() -> None:
    left_out = [table().lay_out(width).left_out for width in (200, 70, 50, 40, 20, 1)]
    assert left_out == [(), ("note",), ("output", "note"), *[("kernel", "output", "note")] * 3]


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="must have 6 cells; it has 1"):
        table().add("0")


long_texts = st.text("ab_/; 中é", min_size=30, max_size=90)
texts = st.one_of(st.text(max_size=60), long_texts).filter(str.isprintable)


@given(st.lists(st.tuples(texts, texts, st.integers(0, 10**9)), min_size=1, max_size=4), st.integers(45, 120))
def test_nothing_is_lost_and_nothing_is_too_wide(rows: list[tuple[str, str, int]], width: int) -> None:
    wide = Table("", [TableColumn("first"), TableColumn("second"), number("many words here")])
    for one, other, count in rows:
        wide.add(one, other, f"{count:,}")
    layout = wide.lay_out(width)
    assert all(cell_len(line) <= width for line in (*layout.header, *layout.body))
    shown = sorted("".join("".join(layout.body).split()))
    given = sorted("".join("".join(f"{one}{other}{count:,}" for one, other, count in rows).split()))
    assert shown == given
