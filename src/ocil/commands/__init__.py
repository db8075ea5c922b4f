"""One function a command, each given the words behind it; found by `ocil.cli`."""
