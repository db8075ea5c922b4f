"""One file a method: its idea and symbols, its settings, its learner. See `learner.py`."""
