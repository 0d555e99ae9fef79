"""Local mode: `weft.init(local_mode=True)` runs everything in the calling process, for debuggers.

`local_node` is the node as a thread, `local_tasks` runs a task where it is submitted, `local_actors` keeps the actors,
`local_streams` are the generators. What is stored, waited for and counted is the native core's, as in any session.
"""
