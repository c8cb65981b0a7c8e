"""A run as one HTML file, and its leaderboards in the terminal, without models, torch or network."""

from heatcheck.report.html import models_figure, render, write_report
from heatcheck.report.source import RunSource

__all__ = ["RunSource", "models_figure", "render", "write_report"]
