"""Default target of commands without --target."""

from __future__ import annotations

from microfold.cli.notices import say

# For commands that write or run C: every core can compile this code.
PORTABLE = "host"
# For commands that report figures of a core: on this machine, microfold counts no instructions.
CORE = "cortex-m4"
# Value of --target for all cores that can be simulated.
EVERY_CORE = "all"


def split_targets(text: str) -> list[str]:
    """Return the targets of a comma-separated list; `EVERY_CORE` stands for all simulated cores."""
    from microfold import target

    names = [name.strip() for name in text.split(",") if name.strip()]
    if EVERY_CORE not in names:
        return names
    cores = [name for name in target.available() if target.load(name).board]
    return list(dict.fromkeys([*cores, *(name for name in names if name != EVERY_CORE)]))


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
