"""Trainings of other libraries, audited as they are. One file a library, imported by name."""
