"""Calls into an installed CMSIS-NN (https://github.com/ARM-software/CMSIS-NN)."""
