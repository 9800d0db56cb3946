"""The fuzzers by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.descriptions import Descriptions
from tests.fuzz.engine import Fuzzer
from tests.fuzz.files import Files
from tests.fuzz.mutants import Mutants
from tests.fuzz.sequences import Sequences
from tests.fuzz.text import Text

KINDS: dict[str, Callable[[], Fuzzer]] = {
    "files": Files,
    "text": Text,
    "targets": Descriptions,
    "passes": Sequences,
    "mutants": Mutants,
}
