"""What a call of a kernel takes: how often each part of its code runs, times what a core needs for it."""
