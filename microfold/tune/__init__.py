"""Tuning: measured cycles of kernels, on a simulated core or on the user's board, for later builds."""
