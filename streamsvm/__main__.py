"""`python -m streamsvm` is the command `streamsvm`, where that is not on the path."""

from streamsvm.cli import main

main()
