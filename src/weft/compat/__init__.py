"""Lets programs and libraries written for Ray find Weft where they import `ray`.

    import weft.compat
    weft.compat.install_as_ray()
    import ray                       # Weft, in Ray's words

or, for a whole program: `python -m weft.compat script.py`, also with `-m module` and `-c code`. Every process that the
program starts finds it too: workers, jobs, `subprocess`, and those of `multiprocessing`.

This package is a layer on top of all others: it maps words of Ray 2.60, and nothing imports it. What only Ray has is in
`weft.compat.ray`; whatever is not there is Weft's own module of the same name.
"""

from weft.compat.alias import API_LEVEL as API_LEVEL
from weft.compat.alias import install_as_ray as install_as_ray
