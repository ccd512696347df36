"""Bridges to other people's software."""
