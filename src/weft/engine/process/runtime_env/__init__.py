"""Runtime environments: what a job, a task or an actor asks of the processes that run it.

Asked for in one process, made in another. The submitter checks what was written (`validation`), copies local folders
(`packages`, in `folders`) and joins it with what it runs in itself (`effective`, `merge`); the result travels as
canonical JSON. A worker is bound to one: `launch` runs in it before it attaches (installing, another interpreter),
`apply` when it is bound. See docs/design/0003-runtime-environments.md.
"""
