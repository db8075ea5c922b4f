"""The one paper (Tran et al., CVPR 2026): its numbers and claims beside our runs.

published (its tables as data), notes -> cells -> tables; claims (its sentences as data), evidence
(pairs of runs), benches (records of bench/), modality -> claimtable (verdicts); times projects
what was not run; summary writes PAPER.md and its part of RESULTS.md. `report` knows none of it.
"""
