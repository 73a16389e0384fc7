"""Reports: figures and sentences. They render what was computed elsewhere, and compute nothing."""
