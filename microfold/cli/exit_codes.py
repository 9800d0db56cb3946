"""Exit codes that are not the command's own."""

CLOSED_OUTPUT = 141  # 128 + SIGPIPE: what other programs end with when nobody reads on
