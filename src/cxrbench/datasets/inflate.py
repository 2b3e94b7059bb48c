"""Which zlib inflates: ISA-L's, through the isal package, where it is installed; else Python's.

The bytes are the same. Inflating is most of the work of packing, and ISA-L takes about half as long for it.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any

inflate: ModuleType = zlib
ERRORS: tuple[Any, ...] = (zlib.error,)
try:
    from isal import isal_zlib
except ImportError:  # it is not needed
    pass
else:
    inflate, ERRORS = isal_zlib, (zlib.error, isal_zlib.error)
