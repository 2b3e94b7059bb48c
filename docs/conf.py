"""Sphinx's settings for the documentation site (`make docs`); pages.py writes its source pages."""

project = "cxrbench"
copyright = "the cxrbench authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "cxrbench"
html_show_sphinx = False
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
nitpicky = False
# Highlighting of `text` blocks, and of shell lines that name no known program, is not an error.
suppress_warnings = ["misc.highlighting_failure"]
