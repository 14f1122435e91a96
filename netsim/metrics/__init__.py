"""Metrics: from a record to times, bandwidths, link loads, critical paths and bounds. They never ask an engine."""
