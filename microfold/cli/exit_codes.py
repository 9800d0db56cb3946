"""Exit codes that do not depend on the command."""

CLOSED_OUTPUT = 141  # 128 + SIGPIPE: as of other programs whose output pipe was closed
