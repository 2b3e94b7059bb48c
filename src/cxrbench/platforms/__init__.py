"""The platform seam: base.py has what a training loop asks of a device; a module per platform answers."""
