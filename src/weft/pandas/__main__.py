"""`python -m weft.pandas script.py`."""

from weft.pandas.command import main

main()
