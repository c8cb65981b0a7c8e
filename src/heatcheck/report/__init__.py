"""A run as one HTML file, and its leaderboards in the terminal, without models, torch or network."""

from heatcheck.report.html import models_figure, render, text_sheet_page, write_report
from heatcheck.report.source import RunSource
from heatcheck.report.text_sheet import TextReading, shade, text_sheet

__all__ = [
    "RunSource",
    "TextReading",
    "models_figure",
    "render",
    "shade",
    "text_sheet",
    "text_sheet_page",
    "write_report",
]
