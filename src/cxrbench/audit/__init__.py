"""What a training step's graph says about Neuron, before anybody has compiled it there.

``capture`` and ``variants`` need torch; ``hlo``, ``facts``, ``rules``, ``networks`` and ``recorded`` do not,
so that a paper is rebuilt from recorded audits without it.
"""
