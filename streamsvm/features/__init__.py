"""What happens to features between a row and a solver, counted on the stream and kept with the model."""
