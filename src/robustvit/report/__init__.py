"""Reports: run folders in, one self-contained HTML page out."""

from robustvit.report.page import write_report

__all__ = ["write_report"]
