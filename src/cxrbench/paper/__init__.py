"""Tables, figures and numbers of the paper, from evidence alone."""
