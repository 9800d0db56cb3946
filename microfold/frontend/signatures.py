"""Signatures: names that a file gives to the subgraphs that can be run by themselves."""

from __future__ import annotations

import tflite

from microfold.errors import InputError, ModelFormatError
from microfold.frontend.raw import MAX_NAME, RawSubgraph, malformed_as_error

MAX_SIGNATURES = 1024  # that a message lists, and that are looked at


def entry(data: bytes, source: str, subgraphs: tuple[RawSubgraph, ...], signature: str | None) -> int:
    """Index of the subgraph to compile: that of the signature, or the first one.

    Args:
        data: a file's bytes, of which `subgraphs` have been read.
        signature: its name; None: the first subgraph, whatever it is called.

    Raises:
        InputError: the file has no signature of that name.
        ModelFormatError: the signature's subgraph is not there.
    """
    if signature is None:
        return 0
    with malformed_as_error(source):
        model = tflite.Model.GetRootAsModel(data, 0)
        named: dict[str, int] = {}
        for number in range(min(model.SignatureDefsLength(), MAX_SIGNATURES)):
            item = model.SignatureDefs(number)
            assert item is not None
            name = bytes(item.SignatureKey() or b"")[:MAX_NAME].decode("utf-8", errors="replace")
            named[name] = int(item.SubgraphIndex())
    if signature not in named:
        names = ", ".join(map(repr, named)) or "none"
        raise InputError(f"{source} has no signature {signature!r}; its signatures are {names}")
    if not 0 <= named[signature] < len(subgraphs):
        raise ModelFormatError(
            f"{source} is not a well-formed .tflite file (signature {signature!r} is subgraph "
            f"{named[signature]} of {len(subgraphs)}); convert the model again"
        )
    return named[signature]
