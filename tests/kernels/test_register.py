"""The list of kernels: names are their own, and features are those that targets can have."""

from __future__ import annotations

import inspect

import pytest

import microfold.kernels.selection.candidates  # noqa: F401  (registers all of them)
from microfold.errors import DeclarationError
from microfold.frontend.operators.elementwise.unary import operators_of
from microfold.ir.text import parse
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.elementwise.binary import operator_of
from microfold.kernels.kernel import KERNELS, Kernel, register
from microfold.kernels.names import check_name
from tests.kernels.cores import check_choice


def kernel(of_name: str, *wanted: str) -> type[Kernel]:
    class Made(Kernel):
        name = of_name
        features = frozenset(wanted)

    return Made


def test_a_name_is_taken_once() -> None:
    before = list(KERNELS)
    with pytest.raises(ValueError, match="s8_softmax__c is taken"):
        register(kernel("s8_softmax__c"))
    assert before == KERNELS


def test_features_are_those_of_targets() -> None:
    before = list(KERNELS)
    with pytest.raises(ValueError, match=r"s8_new__dsp requires unknown features dps; .*: thumb1, .*dsp"):
        register(kernel("s8_new__dsp", "dps", "thumb2"))
    assert before == KERNELS


def test_a_kernel_has_an_operator() -> None:
    with pytest.raises(DeclarationError, match="s8_new__c has none: add op = Maximum"):
        register(kernel("s8_new__c"))


def test_errors_of_declarations_name_the_remedy() -> None:
    with pytest.raises(DeclarationError, match="no SOFTPLUS: correct the name, or write the importer"):
        operators_of(["ceil", "softplus"])
    with pytest.raises(DeclarationError, match="there is no 'hypotenuse', which"):
        operator_of("f32_hypotenuse__c")
    with pytest.raises(DeclarationError, match="length are not: add them to the class attribute `fields`"):
        KernelCall(CFunction("t.c.j2", "bool_maximum__dsp"), {"length": 3})


def test_the_reason_is_named_if_another_kernel_is_selected() -> None:
    graph = parse("graph @m(%x: bool[4], %z: bool[4]) -> (%y) {\n  %y: bool[4] = maximum(%x, %z)\n}")
    with pytest.raises(
        AssertionError, match="bool_maximum__c was selected; bool_maximum__dsp: no registered"
    ):
        check_choice({"maximum": graph}, "cortex-m4", "bool_maximum__dsp")


@pytest.mark.parametrize(
    "name",
    [
        "s8_softmax",
        "s8_softmax__",
        "s8_softmax__sse",
        "s8__c",
        "s8_s4_conv2d__c",
        "S8_add__c",
        "s8_add__c__d",
    ],
)
def test_names_are_a_grammar(name: str) -> None:
    with pytest.raises(ValueError, match="types, operator, two underscores, instruction set, variant"):
        register(kernel(name))


@pytest.mark.parametrize(
    "name", ["s8_new__c", "s8_s4w_new__dsp_2x2", "f32_s8w_new__fpu", "new__c", "s8_f32_new_op__mve_4"]
)
def test_names_of_the_grammar(name: str) -> None:
    check_name(name)


def test_kernels_are_documented() -> None:
    """By their own classes: what bases say does not tell how they differ."""
    wrong: list[str] = []
    for registered in KERNELS:
        doc = inspect.cleandoc(vars(type(registered)).get("__doc__") or "")
        # That of a dataclass without one is its signature.
        if len(doc.split()) < 3 or doc.startswith(f"{type(registered).__name__}("):
            wrong.append(
                f"{registered.name} needs a docstring: algorithm, layout of constants, what proves it"
            )
        elif not doc.endswith("."):
            wrong.append(f"{registered.name}: a docstring has sentences")
    assert not wrong, "\n".join(wrong)
