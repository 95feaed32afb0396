"""Plain NumPy twins of the compiled kernels: they read like the formulas."""
