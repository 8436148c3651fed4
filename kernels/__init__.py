"""Numeric operations on tensors. Knows nothing of models, requests or windows.

NOTE: this package must never carry a `__version__`: Hugging Face transformers looks for a PyPI
package of the same name and decides by that attribute whether to import from it.
"""
