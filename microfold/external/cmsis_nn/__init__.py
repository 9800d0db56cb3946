"""Calls of an installed CMSIS-NN library (https://github.com/ARM-software/CMSIS-NN)."""
