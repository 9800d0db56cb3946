"""Passes that fuse operators and decide which values share memory."""
