"""A command is a dataclass of its options that is called, or a function of the words behind it."""

# command -> module of ocil.commands, and the class or function in it
COMMANDS = {
    "run": "run:run",
    "resume": "run:Resume",
    "learn": "learn:learn",
    "predict": "model:Predict",
    "score": "score:Score",
    "inspect": "model:Inspect",
    "forget": "correct:Forget",
    "relabel": "correct:Relabel",
    "merge": "merge:Merge",
    "show": "results:Show",
    "report": "results:Report",
    "results": "results:Results",
    "figure": "figure:Figure",
    "study": "study:Study",
    "tune": "tune:Tune",
    "methods": "methods:Methods",
    "data": "data:Data",
    "completion": "completion:Completion",
}
