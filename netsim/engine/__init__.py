"""Engines: from a topology and a schedule to a record of what happened when.

Links (`links`), what every engine needs before the clock starts (`prepare`, `classes`), the readable reference engine
(`simpy_lanes`, `simpy_pieces`), the same in flat records (`compiled`) and the front door (`run`).
"""
