"""Looking at a failure again: what a task was given, what it asked of actors, a debugger. No task's way passes here."""
