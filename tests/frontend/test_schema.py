"""Tables of operator names: each name is one that the file format has, and one that is imported."""

from __future__ import annotations

import pytest

from microfold.frontend.half import WIDENED
from microfold.frontend.importers import imports
from microfold.frontend.legacy import MOVING, SHIFTED
from microfold.frontend.operators import IMPORTERS
from microfold.frontend.schema import operator_names


@pytest.mark.parametrize("check", [imports, operator_names])
def test_unknown_names_are_errors(check: object) -> None:
    assert callable(check)
    check("CUSTOM Acme")
    with pytest.raises(ValueError, match="SQUARE_ROOT"):
        check("SQRT", "SQUARE_ROOT")


@pytest.mark.parametrize("table", [SHIFTED, MOVING, WIDENED], ids=["SHIFTED", "MOVING", "WIDENED"])
def test_named_operators_are_imported(table: frozenset[str]) -> None:
    assert table <= IMPORTERS.keys()
