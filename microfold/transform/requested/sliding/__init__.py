"""Analysis and construction of sliding networks for `slide_window`."""
