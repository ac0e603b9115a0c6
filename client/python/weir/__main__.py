"""`python -m weir` is the command `weir`."""

from weir._launcher import main

main()
