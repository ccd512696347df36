"""Benchmarks: plans, records of runs, tables beside the paper's, and what a trained model did."""
