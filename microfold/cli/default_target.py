"""The target that a command takes where none is given."""

from __future__ import annotations

from microfold.cli.notices import say

# For C that is written or run. Every core can compile it.
PORTABLE = "host"
# For figures of a core: nothing is counted on this machine.
CORE = "cortex-m4"


def choose_target(given: str | None, default: str, quiet: bool) -> str:
    """Return the target that is given, or else the default one.

    A default is said on the standard error stream, as code and figures of another target are other ones.

    Args:
        default: `PORTABLE` or `CORE`.
        quiet: nothing is said, as the output is JSON, which names the target.
    """
    if given is not None:
        return given
    if not quiet:
        portable = " (portable C: a core runs C that is made for it faster)" if default == PORTABLE else ""
        say(
            f"no --target is given: {default} is taken{portable}; "
            "choose another with --target, `microfold targets` lists them"
        )
    return default
