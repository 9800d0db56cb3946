"""The audio front end of TensorFlow Lite for Microcontrollers, whose operators take integers as they are."""
