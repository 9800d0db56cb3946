"""Distribution of tasks to local or remote processes, with retries after failures."""
