"""Folders that a firmware project adds, in the form that its build system expects."""
