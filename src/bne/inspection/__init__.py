"""Looking into a trained model: one pass over images, and figures and maps made of it."""
