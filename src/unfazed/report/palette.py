"""Colours and markers of the figures: told apart with and without colour vision (Okabe and Ito), and by marker."""

from __future__ import annotations

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "osD^vPX*"
MOST = len(COLOURS)
GRID, QUIET = "#dddddd", "#888888"
