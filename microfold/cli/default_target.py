"""Default target of commands without --target."""

from __future__ import annotations

from microfold.cli.notices import say

# For commands that write or run C: every core can compile this code.
PORTABLE = "host"
# For commands that report figures of a core: on this machine, microfold counts no instructions.
CORE = "cortex-m4"


def choose_target(given: str | None, default: str, quiet: bool) -> str:
    """Return the given target, or else the default.

    A notice on standard error names the default, because code and figures depend on the target.

    Args:
        default: `PORTABLE` or `CORE`.
        quiet: print no notice, because the output is JSON, which names the target.
    """
    if given is not None:
        return given
    if not quiet:
        portable = " (portable C; code for a specific core is faster)" if default == PORTABLE else ""
        say(
            f"no --target given: using {default}{portable}; "
            "choose a target with --target, `microfold targets` lists them"
        )
    return default
