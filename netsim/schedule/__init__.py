"""Schedules: what each rank sends to which, and after what; proved and replayed, without any notion of time."""
