"""Generated code measured, and compared with the reference."""
