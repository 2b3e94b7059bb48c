"""Files, tables, locks and messages: what every room needs."""
