"""The graph of a network's training step, held against Neuron's limits. Only ``capture`` needs torch."""
