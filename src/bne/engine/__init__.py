"""Carrying out recipes: `bne.training.run.run` trains, `bne.training.model_folder.load_model` reads back.

One concept a module: what a run consists of (`recipe`, `setting`, `networks`), how it goes (`run`,
`trainer`, `phase`, `step`), and what it leaves behind (`folder`, `checkpoints`, `saved`, `result`).
"""
