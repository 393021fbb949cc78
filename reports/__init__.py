"""The auditor. `audit_dataframe` is loaded at first use, so importing this package stays cheap."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from highwater.reports.dataframe import audit_dataframe

__all__ = ["audit_dataframe"]


def __getattr__(name: str) -> Any:
    if name != "audit_dataframe":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from highwater.reports.dataframe import audit_dataframe

    return audit_dataframe
