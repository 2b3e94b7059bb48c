"""The report: one HTML page with verdicts, claims, tables, figures and the evidence of every cell."""
