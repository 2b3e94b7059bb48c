"""How good scores are and whether they differ, from tables of predictions; needs nothing else of cxrbench."""
