"""Remote functions: the class behind `@weft.remote` on a function, where Ray's users look for it."""

from weft.engine.process.calls.remote_function import RemoteFunction as RemoteFunction
