"""Lets programs and libraries written for Ray's core API find Weft where they import `ray`.

    import weft.compat
    weft.compat.install_as_ray()
    import ray                       # Weft

or, for a whole program: `python -m weft.compat script.py`. Workers find it too: the alias is installed in them when
the job is bound, because a variable, RAY_MEANS_WEFT, travels with the driver's environment.
"""

from weft.engine.process.ray_alias import install_as_ray as install_as_ray
