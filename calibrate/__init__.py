"""Measuring this machine's link and turning the samples into a link profile. Still empty; README.md says what comes."""
