"""The audio front end of TensorFlow Lite for Microcontrollers: its custom operators called Signal….

Facts about them: https://github.com/tensorflow/tflite-micro/tree/main/signal/micro/kernels
"""
