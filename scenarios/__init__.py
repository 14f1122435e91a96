"""Scenarios: the only room that puts topology, schedule, engine and metrics together."""
