"""Changes without which ai-edge-quantizer refuses or misreads a model."""

from __future__ import annotations

from typing import Any

import pytest
import tflite

from microfold.errors import ModelFormatError
from microfold.frontend.tflite import import_model
from microfold.ir.text import to_text
from microfold.quantization.normalise import normalise
from tests.needs import need_modules
from tests.quantization.models import dense

FULLY_CONNECTED = tflite.BuiltinOperator.FULLY_CONNECTED


def test_an_old_file_gets_codes_and_a_signature() -> None:
    need_modules("ai_edge_litert")
    data = dense()
    found = normalise(data, "old")
    model: Any = tflite.Model.GetRootAsModel(found.data, 0)
    code = model.OperatorCodes(0)
    assert (code.DeprecatedBuiltinCode(), code._tab.Offset(10) > 0) == (FULLY_CONNECTED, True)
    assert model.SignatureDefs(0).SignatureKey() == found.signature.encode()
    assert model.SignatureDefs(0).Inputs(0).Name() == b"input_0"
    assert found.inputs == ("input_0",)
    (operator,) = found.operators.values()
    assert (operator.name, operator.scope) == ("FULLY_CONNECTED", "t3;")
    assert len(found.changes) == 2
    assert to_text(import_model(found.data)) == to_text(import_model(data))
    again = normalise(found.data, "new")
    assert (again.data, again.changes) == (found.data, ())


def test_a_damaged_file_is_refused() -> None:
    need_modules("ai_edge_litert")
    with pytest.raises(ModelFormatError, match="damaged"):
        normalise(dense()[:90], "cut")
