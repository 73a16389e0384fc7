"""The version of dpaudit: a module of its own, so that anything may import it."""

__version__ = "0.3.0"
