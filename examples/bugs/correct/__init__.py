"""Correct trainings, a few of them unusual: an audit must leave them alone."""
