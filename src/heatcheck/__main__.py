"""`python -m heatcheck`."""

from heatcheck.cli import main

main()
