"""Wrong DP-SGD trainings, each after a reported bug. See docs/rules-of-check.md."""
