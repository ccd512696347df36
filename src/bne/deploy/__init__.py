"""A trained model in use: one file, prediction, export, comparison."""
