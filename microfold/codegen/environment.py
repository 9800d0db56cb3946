"""The Jinja2 environment of all templates."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jinja2
import platformdirs
from jinja2.bccache import Bucket

from microfold.codegen.declarations import Rendered, Uses, split, trim
from microfold.codegen.layout import comment_block, comment_text, string_text
from microfold.codegen.literals import literal
from microfold.support import resources


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Compiled templates, kept as Python keeps its modules'; none where that fails."""

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # whatever reading a damaged file may raise
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


@cache
def environment(folder: Path | None = None) -> jinja2.Environment:
    """Strict: an undefined name in a template is an error, never an empty string.

    Args:
        folder: where templates are looked for first, e.g. those of a plug-in.
    """
    folders = [resources.template_dir()] if folder is None else [folder, resources.template_dir()]
    compiled = _compiled_folder()
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        extensions=[Uses],
        bytecode_cache=_CompiledTemplates(str(compiled)) if compiled is not None else None,
    )
    env.filters["trim"] = trim
    env.filters |= {"literal": literal, "comment": comment_block}
    env.filters |= {"comment_safe": comment_text, "string_safe": string_text}
    return env


def _compiled_folder() -> Path | None:
    """Return the folder of compiled templates; None if there is no place for one.

    It is beside the texts. Where nothing can be written there, or Python must not write bytecode, it is in
    the user's cache folder. A user without a home folder, as in a container with any user id, has none:
    templates are then compiled in every process, which takes as long as a model.
    """
    beside = resources.template_dir()
    if os.access(beside, os.W_OK) and not sys.dont_write_bytecode:
        return beside / "__pycache__"
    try:
        cache_folder = platformdirs.user_cache_path("microfold", appauthor=False)
    except (RuntimeError, OSError, KeyError):  # versions of platformdirs differ
        return None
    # Older versions leave `~` in the path of a user without a home folder.
    return cache_folder / "templates" if cache_folder.is_absolute() else None


def render(template: str, variables: Mapping[str, object], folder: Path | None = None) -> Rendered:
    """A template rendered in the environment of a folder, and what it declares to use."""
    return split(environment(folder).get_template(template).render(**variables))


def template_source(path: str) -> str:
    """The text of a template."""
    return (resources.template_dir() / path).read_text(encoding="utf-8")
