"""Study `own-streams`: `Classifier()` as it is against what a person would use instead.

`streams` are learned by `rivals`; a `trial` is one rival on one stream. Records are lines of JSON,
a file a stream (results/own-streams/STREAM.jsonl); their tables are in `ocil.report.own_streams`.
"""
