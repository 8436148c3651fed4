"""Triton operations with the signatures of `kernels.reference`; one operation a file.

Nothing outside imports these modules before a GPU was chosen: `import triton` fails where there
is no Triton. `graph` and `autotune` need torch alone.
"""
