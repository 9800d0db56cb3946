"""Signatures: the names of a file's entry points."""

from __future__ import annotations

import tflite

from microfold.errors import InputError, ModelFormatError
from microfold.frontend.raw import MAX_NAME, RawSubgraph, malformed_as_error

MAX_SIGNATURES = 1024  # signatures that are read, and listed in messages


def entry(data: bytes, source: str, subgraphs: tuple[RawSubgraph, ...], signature: str | None) -> int:
    """Return the index of the subgraph to compile.

    Args:
        data: bytes of the file that contains `subgraphs`.
        signature: name of the signature; None: the first subgraph.

    Raises:
        InputError: the file has no signature of this name.
        ModelFormatError: the subgraph of the signature does not exist.
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
        raise InputError(f"{source} has no signature {signature!r}; available: {names}")
    if not 0 <= named[signature] < len(subgraphs):
        raise ModelFormatError(
            f"{source} is damaged, not a well-formed .tflite file (signature {signature!r} is subgraph "
            f"{named[signature]} of {len(subgraphs)}): convert the model again"
        )
    return named[signature]
