"""Carrying out a recipe: `run.run` trains, `model_folder.load_model` reads back."""
