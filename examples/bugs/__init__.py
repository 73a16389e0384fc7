"""Wrong DP-SGD trainings, each after a bug that somebody really made. See docs/bugs.md."""
