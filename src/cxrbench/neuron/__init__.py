"""Graphs of training steps, checked against Neuron's limits. Only ``capture`` and ``calls`` need torch."""
