"""Proofs that generated C has no undefined behaviour, for any input and any state, by Frama-C."""
