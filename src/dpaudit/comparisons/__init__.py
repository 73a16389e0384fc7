"""Methods and accountants for comparison with papers, each in one file."""
