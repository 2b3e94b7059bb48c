"""The graph of a network's training step, held against Neuron's documented limits without its compiler.

Only ``capture`` needs torch: a paper is rebuilt from recorded audits without it.
"""
