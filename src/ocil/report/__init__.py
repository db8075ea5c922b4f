"""Tables, figures and the page: pure functions of records, without torch.

groups (runs that differ by seed only) -> tables, results (RESULTS.md), show (terminal),
figures -> page (one HTML file). text makes hostile text harmless in each of these languages.
"""
