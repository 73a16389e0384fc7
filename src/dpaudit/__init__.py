"""dpaudit: what differentially private training really leaks."""

__version__ = "0.1.0"
