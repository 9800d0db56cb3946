"""Package formats: the files of a package, and the template of each file.

Paths and folders may contain ``{name}``, the model, ``{package}``, ``{version}`` and ``{vendor}``. A format
adds only its manifest and its build files; all formats share sources, licence, example and README.

Sources of the layouts:

- PlatformIO: docs.platformio.org, "library.json", and the schema in its package `platformio`;
- Arduino: arduino.github.io/arduino-cli, "Library specification", layout 1.5;
- Zephyr: docs.zephyrproject.org, "Modules", and the schema in Zephyr's `scripts/zephyr_module.py`;
- ESP-IDF: docs.espressif.com, "idf_component.yml Manifest File", and its package `idf-component-manager`;
- CMSIS packs: Open-CMSIS-Pack-Spec, `schema/PACK.xsd` 1.7.
"""

from __future__ import annotations

from msgspec import Struct

from microfold.errors import InputError

Files = tuple[tuple[str, str], ...]


class ExportFormat(Struct, frozen=True):
    """Layout of a package for one ecosystem.

    Attributes:
        what: kind of the package, with an article.
        files: path and template of each file that is specific to the format.
        board_files: files to run the example in QEMU, if the target has a simulated board.
        sources, headers: folders of the generated C: private files, and headers that firmware includes.
        example: folder of the example's sources.
        archive: path of a ZIP archive of all other files; empty: no archive.
        cortex_m: whether firmware of this ecosystem can run on Cortex-M.
        needs_url: whether the manifest requires a home page.
    """

    name: str
    what: str
    files: Files
    board_files: Files = ()
    sources: str = "src"
    headers: str = "include"
    example: str = "example"
    archive: str = ""
    cortex_m: bool = True
    needs_url: bool = False


# Files of every package.
COMMON: Files = (
    ("README.md", "export/common/README.md.j2"),
    ("LICENSE", "export/common/LICENSE.j2"),
    ("{example}/{name}_example.h", "export/common/example.h.j2"),
    ("{example}/{name}_example.c", "export/common/example.c.j2"),
)

# Start-up code and linker script of the simulator, see templates/simulate.
_BOARD: Files = (
    ("example/board/startup.c", "simulate/startup.c"),
    ("example/board/semihosting.c", "simulate/semihosting.c"),
    ("example/board/simulate.h", "simulate/simulate.h.j2"),
    ("example/board/link.ld", "simulate/link.ld.j2"),
)

FORMATS = (
    ExportFormat(
        "platformio",
        "a PlatformIO library",
        (
            ("library.json", "export/platformio/library.json.j2"),
            ("examples/check/platformio.ini", "export/platformio/platformio.ini.j2"),
            ("examples/check/src/main.cpp", "export/platformio/main.cpp.j2"),
        ),
        headers="src",
        example="examples/check/src",
    ),
    ExportFormat(
        "arduino",
        "an Arduino library",
        (
            ("library.properties", "export/arduino/library.properties.j2"),
            ("keywords.txt", "export/arduino/keywords.txt.j2"),
            ("examples/check/check.ino", "export/arduino/check.ino.j2"),
        ),
        headers="src",
        example="examples/check",
        needs_url=True,
    ),
    ExportFormat(
        "zephyr",
        "a Zephyr module",
        (
            ("zephyr/module.yml", "export/zephyr/module.yml.j2"),
            ("CMakeLists.txt", "export/zephyr/CMakeLists.txt.j2"),
            ("Kconfig", "export/zephyr/Kconfig.j2"),
            ("samples/check/CMakeLists.txt", "export/zephyr/sample.cmake.j2"),
            ("samples/check/prj.conf", "export/zephyr/prj.conf.j2"),
            ("samples/check/sample.yaml", "export/zephyr/sample.yaml.j2"),
            ("samples/check/src/main.c", "export/zephyr/main.c.j2"),
        ),
        example="samples/check/src",
    ),
    ExportFormat(
        "esp-idf",
        "an ESP-IDF component",
        (
            ("idf_component.yml", "export/esp-idf/idf_component.yml.j2"),
            ("CMakeLists.txt", "export/esp-idf/CMakeLists.txt.j2"),
            ("examples/check/CMakeLists.txt", "export/esp-idf/project.cmake.j2"),
            ("examples/check/main/CMakeLists.txt", "export/esp-idf/main.cmake.j2"),
            ("examples/check/main/idf_component.yml", "export/esp-idf/main.yml.j2"),
            ("examples/check/main/main.c", "export/esp-idf/main.c.j2"),
        ),
        example="examples/check/main",
        cortex_m=False,
    ),
    ExportFormat(
        "cmsis-pack",
        "a CMSIS pack",
        (
            ("{vendor}.{package}.pdsc", "export/cmsis-pack/package.pdsc.j2"),
            ("example/main.c", "export/common/main.c.j2"),
        ),
        archive="{vendor}.{package}.{version}.pack",
        needs_url=True,
    ),
    ExportFormat(
        "cmake",
        "a CMake library",
        (
            ("CMakeLists.txt", "export/cmake/CMakeLists.txt.j2"),
            ("example/main.c", "export/common/main.c.j2"),
        ),
        board_files=(*_BOARD, ("example/board/toolchain.cmake", "export/cmake/toolchain.cmake.j2")),
    ),
    ExportFormat(
        "make",
        "a static library with a Makefile",
        (
            ("Makefile", "export/make/Makefile.j2"),
            ("example/main.c", "export/common/main.c.j2"),
        ),
        board_files=_BOARD,
    ),
)


def find(name: str) -> ExportFormat:
    """Return the format of this name.

    Raises:
        InputError: the format is unknown.
    """
    for each in FORMATS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in FORMATS)
    raise InputError(f"the package format must be one of {known}; got {name!r}")
