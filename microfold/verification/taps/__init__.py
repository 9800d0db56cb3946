"""What a device wrote of its runs, compared with the reference: see `microfold.codegen.taps`."""
