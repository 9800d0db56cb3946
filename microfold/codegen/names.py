"""C names made from the model's.

All names in generated files begin with the model's, so that models can share a program, and even a
translation unit. They are of four kinds, told apart by their form, so that no model can make them collide,
nor two models:

- ``kws_run``, ``kws_output_0_argmax``: what firmware calls, of the header and of that with helpers. None of
  them ends in ``_`` and another one: ``kws_output_0_argmax`` would be a model ``kws_output_0``'s, too, if
  there were ``kws_argmax``.
- ``kws_mf_clamp``: helpers of kernels. Nothing that firmware calls has ``mf`` behind the model's name.
- ``kws__conv1_weights``, ``kws__conv1_layer``, ``kws__conv1_offset``: constants and what else belongs to a
  layer. Two underscores, which a model's name lacks, tell model ``a``'s layer ``b_conv`` from model ``a_b``'s
  layer ``conv``. A `Namer` numbers what is taken.
- ``kws__s8_conv2d__c_2x2``: kernels, with another two underscores.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache

from microfold.ir.node import primary_name

# Characters of identifiers.
WORD = string.ascii_letters + string.digits + "_"
# What helpers of templates begin with.
HELPERS = "mf_"
_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile
    while alignas alignof asm bool catch class constexpr delete explicit export false friend mutable namespace
    new nullptr operator private protected public template this throw true try typeid typename using virtual
"""
# A model's name is also that of its files: they must not hide one of these headers, nor be the user's main.c.
_FILES = """
    arm_acle arm_mve assert complex ctype errno fenv float inttypes iso646 limits locale main math setjmp
    signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time
    uchar unistd wchar wctype
"""
# Prefixes of the macros for all models (MF_NO_ASM), and of the simulation harness.
_PREFIXES = ("mf", "simulate")
MAX_LENGTH = 40
# Its files' names have limits, too.
MODEL_LENGTH = 64


def c_identifier(text: str) -> str:
    """A lower-case C identifier that resembles the text; never a keyword of C or C++, never ``a__b``."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"
    if name[0].isdigit() or name in _KEYWORDS.split():
        name = f"m_{name}"
    return name


def model_identifier(text: str) -> str:
    """An identifier that can also be the stem of a header, and the prefix of everything a model defines."""
    name = c_identifier(text)[:MODEL_LENGTH].rstrip("_")
    if name in _FILES.split() or name.split("_")[0] in _PREFIXES:
        name = f"m_{name}"[:MODEL_LENGTH].rstrip("_")
    if name.endswith(("_weights", "_helpers")):
        # x_weights.c is the file of another model's constants, x_helpers.h that of its helpers.
        name = name[: MODEL_LENGTH - len("_model")].rstrip("_") + "_model"
    return name


# Last components of TensorFlow's tensor names that only repeat what the layer before them is.
_LEAVES = re.compile(
    r"(conv2d|depthwise|matmul|biasadd|relu6?|squeeze|convolution|fusedbatchnormv3|readvariableop|resource|add|"
    r"(avg|max)_?pool([123]d)?|reshape|softmax)?\d*",
    re.IGNORECASE,
)
# Components that name a step of something: the component before them says of what.
_STEPS = re.compile(
    r"(abs|addv?2?|avgpool|batchnorm|cast|concat|dequantize|einsum|erfc?|exp|expanddims|gather|gelu|leakyrelu|"
    r"logistic|matmul|maximum|mean|minimum|moments|mul|neg|pack|pad(v2)?|pow|quantize|realdiv|relu|reshape|rsqrt|"
    r"shape|sigmoid|slice|softmax|split|sqrt|squareddifference|squeeze|stack|strided_slice|strided|sub|sum|tanh|"
    r"tensordot|tile|transpose|truediv|unstack|variance|while)(_?\d+)*",
    re.IGNORECASE,
)
# Names that say nothing: of converted functions, and of a PyTorch program's outermost module.
_GENERIC = re.compile(
    r"((stateful_?)?partitioned_?call|identity(_[a-z0-9]+)?|serving_default.*|tensor|output|const|constant|__main__\..*|"
    r"arith\.constant|tfl\..*)?[_\d]*",
    re.IGNORECASE,
)


def short_name(text: str, operator: str = "") -> str:
    """The telling part of a tensor name.

    Args:
        operator: the name where the tensor's says nothing; default: what it says.
    """
    parts = [part for part in primary_name(text).split(":")[0].split("/") if part]
    # The first of many is the model's own name.
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
    """``leaky_relu`` and ``LeakyRelu``, ``concatenate_1`` and ``concat``."""
    one, other = (re.sub(r"[^a-z]", "", text.lower()) for text in (name, step))
    return one.startswith(other) or other.startswith(one)


def _shorten(name: str) -> str:
    """The last words of a long name, which tell more than the first."""
    words = name.split("_")
    while len(words) > 1 and len("_".join(words)) > MAX_LENGTH:
        words.pop(0)
    return c_identifier("_".join(words)[-MAX_LENGTH:])


def private_name(model: str, name: str) -> str:
    """The name of a layer, constant or kernel of a model."""
    return f"{model}__{name}"


def place_of(model: str, region: str, offset: str) -> str:
    """The address at an offset of a region, in C: a macro of the model."""
    return f"{model.upper()}_{region.upper()}({offset})"


def own_helpers(model: str, code: str) -> str:
    """The code with the helpers of the templates, ``mf_clamp``, as those of a model."""
    return rename(code, HELPERS, lambda name: f"{model}_{name}")


def names_in(code: str, prefix: str) -> set[str]:
    """The identifiers in the code that begin with a prefix, and go on."""
    return set(_beginning_with(prefix).findall(code))


def rename(code: str, prefix: str, new: Callable[[str], str]) -> str:
    """The code with other identifiers in the place of those that begin with a prefix, and go on."""
    return _beginning_with(prefix).sub(lambda found: new(found[0]), code)


@cache
def _beginning_with(prefix: str) -> re.Pattern[str]:
    literal = re.escape(prefix)  # in front: texts are searched for it at once
    return re.compile(rf"{literal}(?<![{WORD}]{literal})[{WORD}]+")


class Namer:
    """Hands out unique identifiers; those of a model are private names of it."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._taken: set[str] = set()
        # The number to try first, by name and suffix: smaller ones are taken.
        self._next: dict[tuple[str, str], int] = {}

    def unique(self, text: str, operator: str = "") -> str:
        """An identifier made from a tensor's name; see `short_name`."""
        return self.claim(short_name(text, operator))

    def claim(self, name: str, suffix: str = "") -> str:
        """``name + suffix``; a number is put between them if that is taken."""
        name = private_name(self._model, name) if self._model else name
        found = name + suffix
        if found in self._taken:
            number = self._next.get((name, suffix), 2)
            while (found := f"{name}_{number}{suffix}") in self._taken:
                number += 1
            self._next[name, suffix] = number + 1
        self._taken.add(found)
        return found
