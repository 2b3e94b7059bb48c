"""Columns of predictions with the findings of NIH's radiographs."""

from cxrbench.datasets.nih_table import FINDINGS

LABELS = [f"label_{finding}" for finding in FINDINGS]
SCORES = [f"score_{finding}" for finding in FINDINGS]
