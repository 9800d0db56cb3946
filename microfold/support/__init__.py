"""Support code: files, folders, processes, signals, dataclasses and caches."""
