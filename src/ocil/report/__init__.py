"""Tables, figures and the page: pure functions of records, without torch.

groups (runs that differ by seed only) -> tables, results (RESULTS.md), show (terminal);
groups -> lines, compare, health -> charts -> web (parts of the page) -> page (one HTML file), and
charts -> strokes -> figures (PDF, PNG); beside writes tables and figures next to a page.
published and notes -> cells -> paper (the paper's tables); claims, runs and streams -> evidence ->
verdicts -> claimtable: parts of results.
text makes hostile text harmless in each of these languages.
"""
