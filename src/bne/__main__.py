"""`python -m bne` is `bne`."""

from bne.cli import main

main()
