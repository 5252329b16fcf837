"""What `evaluate` measures, one family of figures a file; each is a sum over rows that takes a fixed amount of memory.

Sums are added to row by row, in the order of the rows, so that no figure depends on where the stream was cut.
"""
