"""What to run: every setting (`schema`), as values (`settings`), in files, and checked."""
