"""Feature maps: rows become rows of other features, from which a linear model learns what a kernel would."""
