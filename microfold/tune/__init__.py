"""Tuning: what kernels take, measured on a simulated core or on the user's board, for later builds to use."""
