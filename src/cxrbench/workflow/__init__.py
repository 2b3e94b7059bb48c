"""In which order a build goes: its lock, its log, what it made."""
