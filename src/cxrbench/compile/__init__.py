"""Graphs of training steps, checked against Neuron's limits. Only ``capture`` needs torch."""
