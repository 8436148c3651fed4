"""Runs that were pinned, over each other: latencies as lines, figures with their ratios."""
