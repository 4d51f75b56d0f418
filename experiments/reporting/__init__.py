"""The parts of report.py.

results.py   reads what `islands sweep` left: figures, points, medians with their spread
words.py     names of axes and metrics, and numbers, as a reader wants them
plots.py     which plots a figure gets, and their numbers as tables and CSV
drawing.py   a plot as SVG, for light and dark pages and for paper
claims.py    what the papers say, figure by figure, and whether the results agree; claims_*.py: by subject
evidence.py  what the claims are decided with; sizes.py: whether effects are as large as in the paper
page.py      the HTML page; style.py its style sheet
against.py   two result directories beside each other; confidence.py: how sure their ratios are
"""
