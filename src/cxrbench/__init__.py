"""Trainium or CUDA for chest radiographs? Evidence, statistics and cost behind the paper."""
