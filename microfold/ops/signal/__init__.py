"""Audio front end of TensorFlow Lite for Microcontrollers, whose operators ignore quantisation."""
