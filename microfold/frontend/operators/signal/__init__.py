"""Importers of the audio front end of TensorFlow Lite for Microcontrollers: custom operators Signal….

Source: https://github.com/tensorflow/tflite-micro/tree/main/signal/micro/kernels
"""
