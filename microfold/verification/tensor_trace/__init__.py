"""Comparison of tensor traces from devices with the reference; see `microfold.codegen.tensor_trace`."""
