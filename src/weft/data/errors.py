"""What can go wrong with data, one class for each way to react. They name the file, the row and the column."""

from __future__ import annotations

from weft.exceptions import WeftError


class DataError(WeftError):
    """Everything below."""


class ReadError(DataError):
    """A file, or a row of it, cannot be read. `on_error="skip"` of the reader leaves it out and counts it."""

    def __init__(self, path: str, reason: str, row: int | None = None, column: str | None = None) -> None:
        super().__init__(path, reason, row, column)
        self.path = path
        self.reason = reason
        self.row = row
        self.column = column

    def __str__(self) -> str:
        return f"{place(self.path, self.row, self.column)} cannot be read: {self.reason}"


class SchemaError(DataError):
    """A file has other columns or types than the first one. `schema_drift` of the reader makes them fit."""

    def __init__(self, path: str, column: str, reason: str) -> None:
        super().__init__(path, column, reason)
        self.path = path
        self.column = column
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{place(self.path, None, self.column)} does not fit the dataset: {self.reason}. "
            "With schema_drift='fill' missing columns become null, others are left out, and types are cast; with "
            "schema_drift='union' the dataset has the columns of all files."
        )


class RowError(DataError):
    """A user's function raised, or returned what is no data, at one row or batch."""

    def __init__(self, operator: str, where: str, row: int | None, column: str | None, reason: str) -> None:
        super().__init__(operator, where, row, column, reason)
        self.operator = operator
        self.where = where
        self.row = row
        self.column = column
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.operator} failed at {place(self.where, self.row, self.column)}: {self.reason}"


class WriteError(DataError):
    """Nothing was written: what had been prepared was taken away."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"nothing was written to {self.path}: {self.reason}"


def place(where: str, row: int | None, column: str | None) -> str:
    """`row 7, column 'x' of a.csv`."""
    parts = []
    if row is not None:
        parts.append(f"row {row}")
    if column is not None:
        parts.append(f"column {column!r}")
    return f"{', '.join(parts)} of {where}" if parts else where
