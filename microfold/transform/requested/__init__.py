"""Only where asked for."""
