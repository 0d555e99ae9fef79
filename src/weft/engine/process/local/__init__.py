"""Local mode: `weft.init(local_mode=True)` runs everything in the calling process, for debuggers.

`node` is the node as a thread, `tasks` runs a task where it is submitted, `actors` keeps the actors, `streams` are the
generators. What is stored, waited for and counted is the native core's, as in an ordinary session.
"""
