"""Steps of plans: functions of pandas on a part, by names that workers find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas
from pandas import DataFrame, Series


@dataclass(frozen=True)
class Method:
    """A method of a frame or series, or of an accessor of it (`str`, `dt`)."""

    name: str
    accessor: str | None = None

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        owner = target if self.accessor is None else getattr(target, self.accessor)
        return getattr(owner, self.name)(*args, **kwargs)


@dataclass(frozen=True)
class Attribute:
    """Of an accessor: `dt.year`."""

    name: str
    accessor: str

    def __call__(self, target: Any) -> Any:
        return getattr(getattr(target, self.accessor), self.name)


@dataclass(frozen=True)
class Ufunc:
    """A function of NumPy; `place`: which of its arguments the part is."""

    ufunc: Any
    place: int

    def __call__(self, target: Any, *others: Any) -> Any:
        return self.ufunc(*others[: self.place], target, *others[self.place :])


def column(frame: DataFrame, key: Any) -> Any:
    return frame[key]


def columns(frame: DataFrame, keys: list[Any]) -> Any:
    return frame[list(keys)]


def with_column(frame: DataFrame, key: Any, value: Any) -> Any:
    made = frame.copy(deep=False)
    made[key] = value
    return made


def kept(value: Any, mask: Any) -> Any:
    """The rows where a mask is true."""
    return value[mask]


def kept_by_loc(value: Any, mask: Any) -> Any:
    return value.loc[mask]


# ---- labels of filtered rows, in the driver --------------------------------------------------------


def labels_of_frame(index: pandas.Index, mask: Any) -> pandas.Index:
    return DataFrame(index=index)[mask].index


def labels_of_series(index: pandas.Index, mask: Any) -> pandas.Index:
    return Series(mask, index=index)[mask].index


def labels_by_loc(index: pandas.Index, mask: Any) -> pandas.Index:
    return DataFrame(index=index).loc[mask].index
