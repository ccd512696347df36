"""A trained model behind HTTP: requests are batched, bounded, counted and answered."""
