"""The parts of docs/results.md, each made from records."""
