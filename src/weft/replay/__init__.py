"""Running a failed task again from what was recorded, and the debugger. No task's way passes here."""
