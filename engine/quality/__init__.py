"""How good a run's predictions are: perplexity, and divergence from a reference run."""
