"""Cores that support a program's instructions, in the terms of each ecosystem."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Features in order of decreasing requirements; thumb1 code runs on all cores.
_FEATURES = ("mve_fp", "mve", "dsp", "thumb2")

# Attributes of `accept` elements of Open-CMSIS-Pack's PACK.xsd 1.7 (DcoreEnum, DdspEnum, DmveEnum). DSP
# instructions are an option of Cortex-M33 and M35P, vectors one of M52, M55 and M85.
_WITH_VECTORS = ("Cortex-M52", "Cortex-M55", "Cortex-M85")
_WITH_DSP = {
    **dict.fromkeys(("Cortex-M4", "Cortex-M7", *_WITH_VECTORS), ""),
    **dict.fromkeys(("Cortex-M33", "Cortex-M35P"), "DSP"),
}
_PACK: Mapping[str, list[dict[str, str]]] = {
    "mve_fp": [{"Dcore": core, "Dmve": "FP_MVE"} for core in _WITH_VECTORS],
    "mve": [{"Dcore": core, "Dmve": kind} for core in _WITH_VECTORS for kind in ("MVE", "FP_MVE")],
    "dsp": [{"Dcore": core, **({"Ddsp": option} if option else {})} for core, option in _WITH_DSP.items()],
    "thumb2": [{"Dcore": core} for core in ("Cortex-M3", *_WITH_DSP)],
}

# Symbols of Zephyr's arch/arm/core, docs.zephyrproject.org, "Kconfig Search".
_KCONFIG = {
    "mve_fp": "ARMV8_1_M_MVEF",
    "mve": "ARMV8_1_M_MVEI",
    "dsp": "CPU_CORTEX_M4 || CPU_CORTEX_M7 || ARMV8_M_DSP",
    "thumb2": "ARMV7_M_ARMV8_M_MAINLINE",
}


def pack_cores(features: Collection[str]) -> list[dict[str, str]]:
    """Return the alternatives of a pack's condition; empty if any core is suitable.

    Args:
        features: features that the program uses, see `target.description.FEATURES`.
    """
    return _PACK.get(_most(features), [])


def kconfig_cores(features: Collection[str]) -> str:
    """Return the condition of Zephyr's configuration; empty if any core is suitable."""
    return _KCONFIG.get(_most(features), "")


def _most(features: Collection[str]) -> str:
    return next((feature for feature in _FEATURES if feature in features), "")
