"""Engines: from a topology and a schedule to a record of what happened when.

Links (`links`), what every engine needs before the clock starts (`prepare`), the readable reference engine
(`simpy_lanes`) and the front door (`run`).
"""
