"""Modin's query compiler for frames on Weft: notes fall-backs, and says what a move to or from Weft costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modin.core.storage_formats.base.query_compiler import BaseQueryCompiler, QCCoercionCost
from modin.core.storage_formats.pandas.query_compiler import PandasQueryCompiler

from weft.pandas.journal import journal


class WeftQueryCompiler(PandasQueryCompiler):
    _MAX_SIZE_THIS_ENGINE_CAN_HANDLE = 1 << 62

    @classmethod
    def _maybe_warn_on_default(cls, *, message: str = "", reason: str = "") -> None:
        if journal.note_fallback(message, reason):
            super()._maybe_warn_on_default(message=message, reason=reason)

    @classmethod
    def move_from(cls, source_qc: BaseQueryCompiler) -> WeftQueryCompiler:
        """A frame that was asked to move here does, however small it is."""
        from weft.pandas.frame import WeftFrame

        moved: WeftQueryCompiler = cls.from_pandas(source_qc.to_pandas(), WeftFrame)
        return moved

    def move_to_cost(
        self, other_qc_type: type, api_cls_name: str | None, operation: str, arguments: Mapping[str, Any]
    ) -> int:
        """Where a frame of Weft meets one of pandas, that of pandas moves."""
        return int(QCCoercionCost.COST_ZERO if isinstance(self, other_qc_type) else QCCoercionCost.COST_HIGH)
