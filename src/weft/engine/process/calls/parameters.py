"""A function's parameters as plain data, to check a call before it is sent. Travels inside handles. Pure.

Only what is needed to say whether a call fits; the words are Python's own. A function without a Python signature
(a builtin) is not checked.

>>> Parameters.of(lambda a, b=1: None).check("f", (), {"b": 2})
Traceback (most recent call last):
TypeError: f() missing 1 required positional argument: 'a'
"""

from __future__ import annotations

from typing import Any, NamedTuple

_VAR_POSITIONAL, _VAR_KEYWORD = 0x04, 0x08
ANY_NUMBER = 0x7FFFFFFF


class Parameters(NamedTuple):
    """Of one function, without `self`."""

    positional: tuple[str, ...]
    positional_only: int
    """How many of the first cannot be named."""
    defaults: int
    """How many of the last may be left out."""
    keyword_only: tuple[str, ...]
    required_keywords: tuple[str, ...]
    takes_any_positional: bool
    takes_any_keyword: bool

    @classmethod
    def of(cls, function: Any, skip: int = 0) -> Parameters | None:
        """None when nothing is known. `skip`: so many first parameters are filled by the call (`self`)."""
        code = getattr(function, "__code__", None)
        if code is None or not hasattr(code, "co_posonlyargcount"):
            return None
        names = code.co_varnames
        count = code.co_argcount
        keyword_only = names[count : count + code.co_kwonlyargcount]
        given = function.__kwdefaults__ or {}
        any_positional = bool(code.co_flags & _VAR_POSITIONAL)
        if skip > count and not any_positional:
            return None
        return cls(
            positional=names[skip:count],
            positional_only=max(0, code.co_posonlyargcount - skip),
            defaults=min(len(function.__defaults__ or ()), max(0, count - skip)),
            keyword_only=keyword_only,
            required_keywords=tuple(name for name in keyword_only if name not in given),
            takes_any_positional=any_positional,
            takes_any_keyword=bool(code.co_flags & _VAR_KEYWORD),
        )

    def plain_range(self) -> tuple[int, int]:
        """How few and how many positional arguments alone are sure to fit; (1, 0) when none are."""
        if self.required_keywords:
            return 1, 0
        most = ANY_NUMBER if self.takes_any_positional else len(self.positional)
        return len(self.positional) - self.defaults, most

    def signature(self) -> Any:
        """For editors: the names; a default is shown as `...`, since its value is not known here."""
        import inspect

        made = []
        for place, name in enumerate(self.positional):
            by_place = place < self.positional_only
            kind = inspect.Parameter.POSITIONAL_ONLY if by_place else inspect.Parameter.POSITIONAL_OR_KEYWORD
            is_needed = place < len(self.positional) - self.defaults
            made.append(inspect.Parameter(name, kind, default=inspect.Parameter.empty if is_needed else ...))
        if self.takes_any_positional:
            made.append(inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL))
        for name in self.keyword_only:
            default = inspect.Parameter.empty if name in self.required_keywords else ...
            made.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
        if self.takes_any_keyword:
            made.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(made)

    def check(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """TypeError, as Python's own, when the call does not fit."""
        if len(args) > len(self.positional) and not self.takes_any_positional:
            count = len(self.positional)
            takes = f"{count} positional argument{'' if count == 1 else 's'}"
            raise TypeError(f"{name}() takes {takes} but {len(args)} {'was' if len(args) == 1 else 'were'} given")
        filled = set(self.positional[: len(args)])
        nameable = self.positional[self.positional_only :]
        for keyword in kwargs:
            if keyword in nameable:
                if keyword in filled:
                    raise TypeError(f"{name}() got multiple values for argument '{keyword}'")
                filled.add(keyword)
            elif keyword not in self.keyword_only and not self.takes_any_keyword:
                raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'")
        required = self.positional[: len(self.positional) - self.defaults]
        _missing(name, "positional", [entry for entry in required if entry not in filled])
        _missing(name, "keyword-only", [entry for entry in self.required_keywords if entry not in kwargs])


def _missing(name: str, kind: str, names: list[str]) -> None:
    if names:
        listed = ", ".join(f"'{entry}'" for entry in names)
        plural = "" if len(names) == 1 else "s"
        raise TypeError(f"{name}() missing {len(names)} required {kind} argument{plural}: {listed}")


class Check:
    """What the native submitter calls with the arguments that it does not know to fit."""

    __slots__ = ("_name", "_parameters")

    def __init__(self, name: str, parameters: Parameters) -> None:
        self._name = name
        self._parameters = parameters

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._parameters.check(self._name, args, kwargs)


def check_for(name: str, parameters: Parameters | None) -> tuple[Check, int, int] | None:
    """As RemoteCall and ActorCall want it."""
    return None if parameters is None else (Check(name, parameters), *parameters.plain_range())
