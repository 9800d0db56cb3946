"""Types: from floats to integers and back, between scales, between widths."""
