"""Tables, figures and the page of any records: pure functions of runs, without torch.

runs (a record and its numbers) -> groups (runs that differ by their seed only) -> compare (paired
differences, who leads), tables -> render (Markdown, LaTeX, CSV, terminal), results (RESULTS.md),
show (one record). details and panels describe charts (axes, style); page draws them with plotly,
figures and matplotlib_charts as PDF and PNG; files writes tables and figures beside a page.
"""
