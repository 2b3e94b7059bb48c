"""``python -m cxrbench`` is ``cxrbench``."""

from cxrbench.cli import main

main()
