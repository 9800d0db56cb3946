"""Setting of a measurement: everything that it depends on, except the layer and its kernel."""

from __future__ import annotations

from msgspec import Struct

from microfold import __version__
from microfold.options import Options
from microfold.target import Target

# Name of the board for cycles by the cycle model.
SIMULATED = "simulated"
CACHES = ("warm", "cold")
# Pseudo flag: no two layers share a function.
_OWN_FUNCTIONS = "own-functions"


class Setting(Struct, frozen=True, order=True):
    """Setting of measurements.

    Attributes:
        board: name of the board; `SIMULATED` for the cycle model.
        clock: clock of the core, in Hz; 0 for the cycle model.
        caches: ``warm`` or ``cold``.
        flags: compiler with its flags, and whether layers share functions.
    """

    target: str
    board: str
    clock: int
    caches: str
    flags: str
    version: str = __version__

    @property
    def where(self) -> str:
        """Name of the board with clock and caches, as for `--board`."""
        if self.board == SIMULATED:
            return SIMULATED
        return f"{self.board}@{self.clock}/{self.caches}"

    @property
    def level(self) -> str:
        """Optimisation level, as far as the compiler flags depend on it."""
        words = self.flags.split()
        if _OWN_FUNCTIONS in words:
            return "speed"
        return "size" if "-Os" in words else "balanced"


def simulated_setting(target: Target, options: Options) -> Setting:
    """Return the setting of the cycle model."""
    return Setting(target.name, SIMULATED, 0, "warm", code_flags(target, options))


def code_flags(target: Target, options: Options) -> str:
    """Return the compiler, its flags and other settings that decide how C is compiled."""
    words = [target.compiler, *target.cpu_flags, options.compiler_flag]
    words += [_OWN_FUNCTIONS] if options.optimize == "speed" else []
    return " ".join(words)
