"""`python -m heatcheck.data.birds OUT.png` draws the contact sheet."""

import sys

from heatcheck.data.birds.sheet import contact_sheet

if len(sys.argv) != 2:
    sys.exit("usage: python -m heatcheck.data.birds OUT.png")
contact_sheet().save(sys.argv[1])
