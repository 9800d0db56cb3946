"""What a measurement depends on beside the layer and its kernel."""

from __future__ import annotations

from microfold import __version__
from microfold.options import Options
from microfold.support.frozen import frozen
from microfold.target import Target

# The board of what the cycle model estimates from executed instructions.
SIMULATED = "simulated"
CACHES = ("warm", "cold")
# Among the flags: no two layers share a function.
_OWN_FUNCTIONS = "own-functions"


@frozen(order=True)
class Setting:
    """Where and how something was measured.

    Attributes:
        target: its name.
        board: as its user calls it; `SIMULATED` for the cycle model.
        clock: of the core, Hz; 0 for the cycle model.
        caches: ``warm`` or ``cold``.
        flags: of the compiler, and whether layers share functions.
        version: of microfold, whose code it is.
    """

    target: str
    board: str
    clock: int
    caches: str
    flags: str
    version: str = __version__

    @property
    def where(self) -> str:
        """For people, and for `--board`."""
        if self.board == SIMULATED:
            return SIMULATED
        return f"{self.board}@{self.clock}/{self.caches}"

    @property
    def level(self) -> str:
        """Of optimisation, as far as it decides how code is compiled; for people."""
        words = self.flags.split()
        if _OWN_FUNCTIONS in words:
            return "speed"
        return "size" if "-Os" in words else "balanced"


def simulated_setting(target: Target, options: Options) -> Setting:
    """That of the cycle model."""
    return Setting(target.name, SIMULATED, 0, "warm", code_flags(target, options))


def code_flags(target: Target, options: Options) -> str:
    """What decides how the same C becomes machine code."""
    words = [target.compiler, *target.cpu_flags, options.compiler_flag]
    words += [_OWN_FUNCTIONS] if options.optimize == "speed" else []
    return " ".join(words)
