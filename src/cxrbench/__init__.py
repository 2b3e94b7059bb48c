"""Is a difference between two accelerators real? Evidence, statistics and cost behind the paper."""
