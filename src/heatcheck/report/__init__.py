"""One HTML file that shows a run, and its leaderboards in the terminal: no model, no torch, no network."""

from heatcheck.report.html import render, write_report
from heatcheck.report.source import RunSource

__all__ = ["RunSource", "render", "write_report"]
