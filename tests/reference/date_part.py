"""DatePart: what Python's own calendar says."""

import datetime as dt
from zoneinfo import ZoneInfo

from tables import EPOCH, per_element

# The calendar repeats after 400 years; Python's ends with the year 9999.
CYCLE = dt.timedelta(days=146_097)
PARTS = {
    "year": lambda t: t.year,
    "quarter": lambda t: (t.month + 2) // 3,
    "month": lambda t: t.month,
    "day": lambda t: t.day,
    "dayofyear": lambda t: t.timetuple().tm_yday,
    "weekday": lambda t: t.weekday(),
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
}
LARGEST = {
    "quarter": 4,
    "month": 12,
    "day": 31,
    "dayofyear": 366,
    "weekday": 6,
    "hour": 23,
    "minute": 59,
    "second": 59,
}
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "D": "days"}


def fit(table, columns, settings):
    parts = settings.get("parts", ["year", "month", "day", "weekday"])
    zone = settings.get("time_zone")
    return columns, parts, UNITS[settings.get("unit", "us")], zone and ZoneInfo(zone)


def part_of(value, part, unit, zone):
    if value is None:
        return None
    if isinstance(value, int):
        cycles, rest = divmod(value, CYCLE // dt.timedelta(**{unit: 1}))
        taken = PARTS[part](EPOCH + dt.timedelta(**{unit: rest}))
        # A year that int32 does not hold is the nearest that it does.
        return max(-(2**31), min(2**31 - 1, taken + 400 * cycles)) if part == "year" else taken
    if not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if zone is not None:
        value = value.astimezone(zone)
    return PARTS[part](value)


def transform(state, table):
    columns, parts, unit, zone = state
    made = {}
    for name in columns:
        for part in parts:

            def taken(value, part=part):
                return part_of(value, part, unit, zone)

            made[f"{name}_{part}"] = ("int32", per_element(table, name, taken))
    return made


def facts(state):
    columns, parts, *_ = state
    few = [part for part in parts if part in LARGEST]
    return {f"{n}_{part}": {"cardinality": LARGEST[part] + 1} for n in columns for part in few}
