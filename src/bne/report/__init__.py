"""Reports for people: figures for a paper, and pages that need nothing else to be read."""
