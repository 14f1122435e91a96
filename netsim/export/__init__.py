"""Results as text and files: tables, CSV, JSON."""
