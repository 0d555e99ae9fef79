"""What type checkers see of `.remote`: the signature of what it submits, each positional argument also as a ref.

Nothing here runs. `Submit` has the whole signature by its ParamSpec; for calls with refs among up to six positional
arguments there is an overload each, whose parameter types come from the function itself, by a protocol. A ref as a
keyword argument is beyond what can be said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from weft._native import ObjectRef

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
OrRef: TypeAlias = T | ObjectRef[T]
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
A_in = TypeVar("A_in", contravariant=True)
B_in = TypeVar("B_in", contravariant=True)
C_in = TypeVar("C_in", contravariant=True)
D_in = TypeVar("D_in", contravariant=True)
E_in = TypeVar("E_in", contravariant=True)
F_in = TypeVar("F_in", contravariant=True)

class _Takes1(Protocol[A_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in], R_co]: ...

class _Takes2(Protocol[A_in, B_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in, B_in], R_co]: ...

class _Takes3(Protocol[A_in, B_in, C_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in, B_in, C_in], R_co]: ...

class _Takes4(Protocol[A_in, B_in, C_in, D_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in, B_in, C_in, D_in], R_co]: ...

class _Takes5(Protocol[A_in, B_in, C_in, D_in, E_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in, B_in, C_in, D_in, E_in], R_co]: ...

class _Takes6(Protocol[A_in, B_in, C_in, D_in, E_in, F_in, R_co]):
    @property
    def _function(self) -> Callable[[A_in, B_in, C_in, D_in, E_in, F_in], R_co]: ...

class Submit(Generic[P, R_co]):
    """The type of `f.remote`."""

    @property
    def _function(self) -> Callable[P, R_co]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ObjectRef[R_co]: ...
    @overload
    def __call__(self: _Takes1[A, R], a: OrRef[A], /) -> ObjectRef[R]: ...
    @overload
    def __call__(self: _Takes2[A, B, R], a: OrRef[A], b: OrRef[B], /) -> ObjectRef[R]: ...
    @overload
    def __call__(self: _Takes3[A, B, C, R], a: OrRef[A], b: OrRef[B], c: OrRef[C], /) -> ObjectRef[R]: ...
    @overload
    def __call__(
        self: _Takes4[A, B, C, D, R],
        a: OrRef[A],
        b: OrRef[B],
        c: OrRef[C],
        d: OrRef[D],
        /,
    ) -> ObjectRef[R]: ...
    @overload
    def __call__(
        self: _Takes5[A, B, C, D, E, R],
        a: OrRef[A],
        b: OrRef[B],
        c: OrRef[C],
        d: OrRef[D],
        e: OrRef[E],
        /,
    ) -> ObjectRef[R]: ...
    @overload
    def __call__(
        self: _Takes6[A, B, C, D, E, F, R],
        a: OrRef[A],
        b: OrRef[B],
        c: OrRef[C],
        d: OrRef[D],
        e: OrRef[E],
        f: OrRef[F],
        /,
    ) -> ObjectRef[R]: ...

class BoundMethod(Generic[P, R_co]):
    """The type of `handle.method` for a method with `@weft.method`, and of `self.method` inside the class."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @property
    def remote(self) -> Submit[P, R_co]: ...
    def options(self, **given: Any) -> BoundMethod[P, R_co]: ...

class TypedMethod(Generic[P, R_co]):
    """The type of a method with `@weft.method` in its class."""

    def __init__(self, function: Callable[Concatenate[Any, P], R_co]) -> None: ...
    def __get__(self, instance: object, owner: type | None = None) -> BoundMethod[P, R_co]: ...
