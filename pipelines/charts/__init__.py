"""Charts as SVG, for pictures and for the HTML report: plots with axes, line charts; numbers and tables as text."""
