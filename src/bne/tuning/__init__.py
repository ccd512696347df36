"""Settings for a domain that nobody has seen, chosen on domains left out in turn."""
