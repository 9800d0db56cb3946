"""C names, derived from names in the model.

All names in generated files start with the model's name. Several models can therefore be linked into one
program, and even compiled in one translation unit. Names have four forms, and cannot collide within a model
or between two models:

- ``kws_run``, ``kws_output_0_argmax``: public names, in the header and the helpers header. No public name
  ends with ``_`` and another public name. Otherwise, if ``kws_argmax`` existed, ``kws_output_0_argmax`` would
  also belong to a model ``kws_output_0``.
- ``kws_mf_clamp``: helpers of kernels. No public name has ``mf`` after the model's name.
- ``kws__conv1_weights``, ``kws__conv1_layer``, ``kws__conv1_offset``: constants and other names of a layer.
  A model's name contains no double underscore. Therefore layer ``b_conv`` of model ``a`` differs from layer
  ``conv`` of model ``a_b``. A `Namer` adds a number to a name that is taken.
- ``kws__s8_conv2d__c_2x2``: kernels, with a second double underscore.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache

from microfold.ir.node import primary_name

# Characters of identifiers.
WORD = string.ascii_letters + string.digits + "_"
# Prefix of helpers in templates.
HELPERS = "mf_"
_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile
    while alignas alignof asm bool catch class constexpr delete explicit export false friend mutable namespace
    new nullptr operator private protected public template this throw true try typeid typename using virtual
"""
# A model's name is also its files' name: they must not hide one of these headers, nor the user's main.c.
_FILES = """
    arm_acle arm_mve assert complex ctype errno fenv float inttypes iso646 limits locale main math setjmp
    signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time
    uchar unistd wchar wctype
"""
# Prefixes of the macros for all models (MF_NO_ASM), and of the simulation harness.
_PREFIXES = ("mf", "simulate")
MAX_LENGTH = 40
# File names also have limits.
MODEL_LENGTH = 64


def c_identifier(text: str) -> str:
    """Return a lower-case C identifier similar to the text, but no C or C++ keyword, and not ``a__b``."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"
    if name[0].isdigit() or name in _KEYWORDS.split():
        name = f"m_{name}"
    return name


def model_identifier(text: str) -> str:
    """Return an identifier that can also be the name of a header and the prefix of a model's names."""
    name = c_identifier(text)[:MODEL_LENGTH].rstrip("_")
    if name in _FILES.split() or name.split("_")[0] in _PREFIXES:
        name = f"m_{name}"[:MODEL_LENGTH].rstrip("_")
    if name.endswith(("_weights", "_helpers")):
        # x_weights.c and x_helpers.h are files of a model x.
        name = name[: MODEL_LENGTH - len("_model")].rstrip("_") + "_model"
    return name


# Last components of TensorFlow's tensor names that only repeat the operator of the layer before them.
_LEAVES = re.compile(
    r"(conv2d|depthwise|matmul|biasadd|relu6?|squeeze|convolution|fusedbatchnormv3|readvariableop|resource|add|"
    r"(avg|max)_?pool([123]d)?|reshape|softmax)?\d*",
    re.IGNORECASE,
)
# Components that name a step of a computation, which the component before them names.
_STEPS = re.compile(
    r"(abs|addv?2?|avgpool|batchnorm|cast|concat|dequantize|einsum|erfc?|exp|expanddims|gather|gelu|leakyrelu|"
    r"logistic|matmul|maximum|mean|minimum|moments|mul|neg|pack|pad(v2)?|pow|quantize|realdiv|relu|reshape|rsqrt|"
    r"shape|sigmoid|slice|softmax|split|sqrt|squareddifference|squeeze|stack|strided_slice|strided|sub|sum|tanh|"
    r"tensordot|tile|transpose|truediv|unstack|variance|while)(_?\d+)*",
    re.IGNORECASE,
)
# Names without information: of converted functions, and of the outermost module of a PyTorch program.
_GENERIC = re.compile(
    r"((stateful_?)?partitioned_?call|identity(_[a-z0-9]+)?|serving_default.*|tensor|output|const|constant|__main__\..*|"
    r"arith\.constant|tfl\..*)?[_\d]*",
    re.IGNORECASE,
)


def short_name(text: str, operator: str = "") -> str:
    """Return the informative part of a tensor name.

    Args:
        operator: name to use if the tensor's name has no information; empty: use the tensor's name anyway.
    """
    parts = [part for part in primary_name(text).split(":")[0].split("/") if part]
    # If there are many components, the first one is the model's name.
    parts = parts[1:] if len(parts) > 2 else parts
    step = parts[-1] if len(parts) > 1 and _STEPS.fullmatch(parts[-1]) else ""
    while len(parts) > 1 and (_LEAVES.fullmatch(parts[-1]) or _STEPS.fullmatch(parts[-1])):
        parts.pop()
    last = parts[-1] if parts else ""
    if operator and _GENERIC.fullmatch(last):
        return c_identifier(operator)
    # PyTorch's components are paths of modules: torch.nn.modules.conv.Conv2d_c1.
    name = last.rsplit(".", 1)[-1]
    if step and not _LEAVES.fullmatch(step) and not _says_the_same(name, step):
        name = f"{name}_{step}"
    return _shorten(c_identifier(name))


def _says_the_same(name: str, step: str) -> bool:
    """Compare names: ``leaky_relu`` equals ``LeakyRelu``, and ``concatenate_1`` equals ``concat``."""
    one, other = (re.sub(r"[^a-z]", "", text.lower()) for text in (name, step))
    return one.startswith(other) or other.startswith(one)


def _shorten(name: str) -> str:
    """Return the last words of a long name, which say more than the first ones."""
    words = name.split("_")
    while len(words) > 1 and len("_".join(words)) > MAX_LENGTH:
        words.pop(0)
    return c_identifier("_".join(words)[-MAX_LENGTH:])


def private_name(model: str, name: str) -> str:
    """Return the name of a layer, constant or kernel of a model."""
    return f"{model}__{name}"


def place_of(model: str, region: str, offset: str) -> str:
    """Return the address of an offset in a region as a C expression, a macro of the model."""
    return f"{model.upper()}_{region.upper()}({offset})"


def own_helpers(model: str, code: str) -> str:
    """Return the code with the templates' helpers, e.g. ``mf_clamp``, renamed for a model."""
    return rename(code, HELPERS, lambda name: f"{model}_{name}")


def names_in(code: str, prefix: str) -> set[str]:
    """Return the identifiers in the code that start with a prefix and are longer."""
    return set(_beginning_with(prefix).findall(code))


def rename(code: str, prefix: str, new: Callable[[str], str]) -> str:
    """Return the code with all identifiers replaced that start with a prefix and are longer."""
    return _beginning_with(prefix).sub(lambda found: new(found[0]), code)


@cache
def _beginning_with(prefix: str) -> re.Pattern[str]:
    literal = re.escape(prefix)  # first in the pattern, so that the search for it is fast
    return re.compile(rf"{literal}(?<![{WORD}]{literal})[{WORD}]+")


class Namer:
    """Generator of unique identifiers; with a model, they are private names of the model."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._taken: set[str] = set()
        # Next number to try, by name and suffix: smaller numbers are taken.
        self._next: dict[tuple[str, str], int] = {}

    def unique(self, text: str, operator: str = "") -> str:
        """Return an identifier derived from a tensor's name; see `short_name`."""
        return self.claim(short_name(text, operator))

    def claim(self, name: str, suffix: str = "") -> str:
        """Return ``name + suffix``, with a number between them if that is taken."""
        name = private_name(self._model, name) if self._model else name
        found = name + suffix
        if found in self._taken:
            number = self._next.get((name, suffix), 2)
            while (found := f"{name}_{number}{suffix}") in self._taken:
                number += 1
            self._next[name, suffix] = number + 1
        self._taken.add(found)
        return found
