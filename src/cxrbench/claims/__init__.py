"""Claims and verdicts: sentences with a number, ours or somebody else's, tested by computation.

``data/claims.yaml`` holds them as data. No verdict is ever copied from the file.
"""
