"""Package of a compiled program: all its files, in memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from msgspec import Struct

from microfold import __version__
from microfold.codegen import requirements
from microfold.codegen.environment import environment
from microfold.codegen.literals import array_lines
from microfold.codegen.provenance import Build
from microfold.errors import InputError
from microfold.export.cores import kconfig_cores, pack_cores
from microfold.export.example import make_example
from microfold.export.footprint import footprint, summary
from microfold.export.formats import COMMON, ExportFormat, Files
from microfold.export.names import (
    package_name,
    plain,
    vendor_name,
    why_not_author,
    why_not_url,
    why_not_vendor,
    why_not_version,
)
from microfold.options import OWN_LICENSE
from microfold.program import Program
from microfold.reporting.schema import BuildReport
from microfold.simulate import boards
from microfold.simulate.firmware import STACK_SIZE
from microfold.simulate.toolchain import effective_flags

Content = str | bytes


class About(Struct, frozen=True):
    """Manifest entries that do not come from the model.

    Attributes:
        version: version of the package, three numbers.
        author: a name, or ``Name <mail@example.com>``.
        url: home page of the package; empty: none, or an address reserved for examples in manifests that
            require one.
        vendor: vendor of a CMSIS pack; empty: the name of the author.

    Raises:
        InputError: some entries are not valid in all ecosystems; the message lists all of them.
    """

    version: str = "1.0.0"
    author: str = "unknown"
    url: str = ""
    vendor: str = ""

    def __post_init__(self) -> None:
        problems = [why_not_version(self.version), why_not_author(self.author), why_not_url(self.url)]
        problems.append(why_not_vendor(self.vendor))
        if any(problems):
            raise InputError("; ".join(filter(None, problems)))


def check_exportable(program: Program, kind: ExportFormat) -> None:
    """Raise `InputError` unless the program can be a package of this format."""
    if program.libraries:
        names = ", ".join(library.name for library in program.libraries)
        raise InputError(
            f"a package must be self-contained; this one would require {names}: "
            "remove --external, or use `microfold build`"
        )
    if program.options.taps:
        raise InputError(
            "a package must be self-contained; with --taps the firmware must define a function: remove "
            "--taps, or use `microfold build`"
        )
    if program.options.split:
        raise InputError(
            "a package must be self-contained; with --memory split the caller must provide the arena: remove "
            "--memory, or use `microfold build`"
        )
    if not kind.cortex_m and not program.target.features.isdisjoint(("thumb1", "thumb2")):
        raise InputError(
            f"{kind.what} is for cores other than Cortex-M; the target is {program.target.name}: "
            "choose host for portable C, or describe the core in a .toml file"
        )


def make_package(
    program: Program,
    build: Build,
    report: BuildReport,
    kind: ExportFormat,
    about: About,
    further: Mapping[str, Content] | None = None,
) -> dict[str, Content]:
    """Return the files of a package: path to content. The output is deterministic.

    Args:
        build: C files of the program.
        report: report of the build.
        further: further files to include.

    Raises:
        InputError: the program cannot be a package of this format.
        NoReferenceError: a part of the model has no reference, so that no example can be checked.
    """
    check_exportable(program, kind)
    values = _values(program, build, report, kind, about)
    place = _Placing(kind, values)
    files: dict[str, Content] = {}
    templates: Files = (*COMMON, *kind.files, *(kind.board_files if values["board"] is not None else ()))
    for path, template in templates:
        files[place(path)] = environment().get_template(template).render(values).rstrip("\n") + "\n"
    for name, text in build.files.items():
        files[f"{place.folder_of(name)}/{name}"] = text
    if build.blob is not None:
        files[f"{program.name}_weights.bin"] = build.blob
    files |= further or {}
    if kind.archive:
        files[place(kind.archive)] = _archive(files)
    return files


class _Placing:
    """Paths of a package's files, with names inserted, and the folders of the generated C."""

    def __init__(self, kind: ExportFormat, values: Mapping[str, Any]):
        self._kind = kind
        self._names = {name: values[name] for name in ("name", "package", "version", "vendor", "example")}

    def __call__(self, path: str) -> str:
        return path.format(**self._names)

    def folder_of(self, name: str) -> str:
        """Return the folder of a generated file: all headers are public, except the header of the weights."""
        public = name.endswith(".h") and not name.endswith("_weights.h")
        return self._kind.headers if public else self._kind.sources


def _values(
    program: Program, build: Build, report: BuildReport, kind: ExportFormat, about: About
) -> dict[str, Any]:
    """Return the variables of the templates."""
    name, target = program.name, program.target
    package = package_name(name)
    own = program.options.license == OWN_LICENSE
    origin = program.origin
    source = f", compiled from {plain(origin.file)}" if origin is not None else ""
    author, _, mail = about.author.partition(" <")
    features = {feature for layer in program.calls for feature in layer.kernel.features}
    return {
        "name": name,
        "macro": name.upper(),
        "package": package,
        "version": about.version,
        "microfold": __version__,
        "description": f"Neural network {name} as plain C99{source} by microfold {__version__}",
        "author": author,
        "mail": mail.rstrip(">"),
        "maintainer": about.author,
        "vendor": about.vendor or vendor_name(about.author),
        "given_url": about.url,
        "url": about.url or f"https://example.com/{package}",
        "license": program.options.license,
        "own_license": own,
        # Registries accept only listed identifiers; LICENSE contains any other license.
        "listed_license": "" if "LicenseRef-" in program.options.license else program.options.license,
        "origin": origin,
        "format": kind.name,
        "what": kind.what,
        "c_files": [f"{kind.sources}/{each}" for each in sorted(build.files) if each.endswith(".c")],
        "source_folder": kind.sources,
        "header_folder": kind.headers,
        "example": kind.example,
        "data": make_example(program),
        "caller_io": program.options.io == "caller",
        "pushed": program.pushed_input,
        "blob": build.blob,
        "blob_rows": [] if build.blob is None else array_lines(np.frombuffer(build.blob, np.uint8)),
        "relaxed": bool(program.relaxations),
        "pack_cores": pack_cores(features),
        "kconfig_cores": kconfig_cores(features),
        "uses_fpu": requirements.uses_fpu(program),
        "needs": report.needs,
        "target": target,
        "target_name": plain(target.name),
        "flags": effective_flags(target.cpu_flags),
        "level": program.options.compiler_flag,
        "archiver": f"{target.compiler.removesuffix('gcc')}ar" if target.compiler.endswith("-gcc") else "ar",
        "board": boards.find(target.board) if target.board else None,
        "stack_size": STACK_SIZE,
        "footprint": footprint(program, report),
        "summary": summary(report),
        # Variables of the simulator's templates, for an image without hooks.
        "hooked": False,
        "sources": {"io": "arena", "given_inputs": ()},
    }


def _archive(files: Mapping[str, Content]) -> bytes:
    """Return a ZIP archive of the files; its bytes are deterministic."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in sorted(files.items()):
            entry = zipfile.ZipInfo(str(PurePosixPath(path)), (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, on every machine
            archive.writestr(entry, content.encode("utf-8") if isinstance(content, str) else content)
    return buffer.getvalue()
