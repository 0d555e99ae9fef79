"""`python -m weft.pandas script.py`."""

from weft.pandas.deferred.command import main

main()
