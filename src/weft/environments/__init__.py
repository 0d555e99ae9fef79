"""Runtime environments: what a job, a task or an actor asks of the processes that run it.

The submitter checks what was written (`validation`), copies local folders (`packages`, in `env_folders`) and joins it
with what it runs in itself (`merge`); the result travels as canonical JSON. Whoever runs a process for it installs what
it needs (`installed`) and takes it on (`apply`). The engine's part is in `engine/process/runtime_env`. See
docs/design/0003-runtime-environments.md.
"""
