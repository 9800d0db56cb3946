"""Jinja2 environment of all templates."""

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
from microfold.codegen.layout import comment_block, comment_text, doc_block, doc_group, string_text
from microfold.codegen.literals import literal
from microfold.support import resources


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Cache of compiled templates in files; errors of the file system disable it."""

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # a damaged file can raise any exception
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


@cache
def environment(folder: Path | None = None) -> jinja2.Environment:
    """Return a strict environment, in which an undefined name is an error and not an empty string.

    Args:
        folder: folder that is searched first, e.g. the templates of a plug-in.
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
    env.filters |= {"literal": literal, "comment": comment_block, "doc": doc_block, "doc_group": doc_group}
    env.filters |= {"comment_safe": comment_text, "string_safe": string_text}
    return env


def _compiled_folder() -> Path | None:
    """Return the folder of compiled templates, or None if no folder is available.

    The folder is next to the templates. If it is not writable, or Python must not write bytecode, it is the
    user's cache folder. A user without a home folder, e.g. with an arbitrary user id in a container, has no
    cache folder. Every process then compiles the templates, which takes as long as compiling a model.
    """
    beside = resources.template_dir()
    if os.access(beside, os.W_OK) and not sys.dont_write_bytecode:
        return beside / "__pycache__"
    try:
        cache_folder = platformdirs.user_cache_path("microfold", appauthor=False)
    except (RuntimeError, OSError, KeyError):  # versions of platformdirs differ
        return None
    # Older versions keep `~` in the path if the user has no home folder.
    return cache_folder / "templates" if cache_folder.is_absolute() else None


def render(template: str, variables: Mapping[str, object], folder: Path | None = None) -> Rendered:
    """Render a template in the environment of a folder."""
    return split(environment(folder).get_template(template).render(**variables))


def template_source(path: str) -> str:
    """Return the text of a template."""
    return (resources.template_dir() / path).read_text(encoding="utf-8")
