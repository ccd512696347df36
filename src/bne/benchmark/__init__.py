"""Plans of runs, their records, and tables made of them beside the paper's."""
