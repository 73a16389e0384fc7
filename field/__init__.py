"""The field, audited: what DP libraries really keep. See docs/field.md; `make field` runs it."""
