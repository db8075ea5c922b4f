"""One function a command, each given the words behind it."""

# command -> module of ocil.commands that holds the function of that name
COMMANDS = {
    "run": "run",
    "resume": "run",
    "learn": "learn",
    "predict": "model",
    "inspect": "model",
    "show": "results",
    "report": "results",
    "results": "results",
    "figure": "figure",
    "study": "study",
    "methods": "methods",
    "data": "data",
    "completion": "completion",
}
