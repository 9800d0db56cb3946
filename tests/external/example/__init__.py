"""The example of docs/externals.md."""
