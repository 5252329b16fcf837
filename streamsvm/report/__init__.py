"""The report of a run: one HTML file that needs nothing else, to be read on any screen, printed, and sent to others.

recording   listens to a run, and keeps a bounded history of it
weights     how the weights are spread, and the largest of them by name
figures     pictures, as SVG; the only module that knows matplotlib
markup      HTML in which every text is escaped
workers     what the workers of a cluster did, and the gap against rounds and bytes
tables      figures as tables, confusion, classes, features, slices
sections    the chapters, each where it has a meaning
page        all of it together, with its style
writing     where it is written, and what must be there before a run begins
"""
