"""Colors (Okabe and Ito, distinguishable with color blindness) and markers of the figures."""

from __future__ import annotations

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "osD^vPX*"
MOST = len(COLORS)
GRID, QUIET = "#dddddd", "#888888"
