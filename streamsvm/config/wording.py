"""How settings look as text: sizes, durations, `${NAME}` references, and the words of an error.

Nothing here knows the settings themselves, and nothing here needs more than the standard library.
"""

import difflib
import os
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from streamsvm.errors import ConfigError
from streamsvm.io.urls import redact_url

MAX_SHOWN = 60  # characters of a wrong value that an error repeats

_UNITS = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,20})?(?:e\+?[0-9]{1,2})?)\s*([kmgt]?i?b)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,6})?)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def parse_size(text: int | str) -> int:
    """Bytes from 4096, "256MB" or "1.5GiB". kB, MB, GB, TB count in thousands, KiB, MiB, GiB, TiB in 1024s."""
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ConfigError(f"must be a size such as 256MB or 1.5GiB (got {show(text)})")
    if isinstance(text, int):
        count = Decimal(text)
    else:
        found = _SIZE.fullmatch(text.strip())
        if not found:
            raise ConfigError(f"must be a size such as 256MB or 1.5GiB (got {show(text)})")
        count = Decimal(found[1]) * _UNITS[(found[2] or "b").lower()]
    if count != count.to_integral_value():
        raise ConfigError(f"must be a whole number of bytes (got {show(text)})")
    if not 0 <= count < 2**63:
        raise ConfigError(f"must be a size between 0 and 2^63 bytes (got {show(text)})")
    return int(count)


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back exactly: one decimal at most, otherwise plain bytes."""
    for unit in ("TB", "TiB", "GB", "GiB", "MB", "MiB", "kB", "KiB"):
        scale = _UNITS[unit.lower()]
        if size >= scale and size * 10 % scale == 0:
            whole, tenth = divmod(size * 10 // scale, 10)
            return f"{whole}.{tenth}{unit}" if tenth else f"{whole}{unit}"
    return str(size)


def parse_duration(text: float | str) -> float:
    """Seconds from 30, "60s", "10m" or "1.5h"; a number without a unit is in seconds."""
    found = _DURATION.fullmatch(str(text).strip()) if not isinstance(text, bool) else None
    if not found:
        raise ConfigError(f"must be a duration such as 60s, 10m or 1.5h (got {show(text)})")
    return float(found[1]) * _SECONDS[(found[2] or "s").lower()]


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back exactly."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def expand(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace each `${NAME}` by the environment's value, once; called at the moment of use, so that settings that
    are printed or saved hold the reference and never the secret behind it."""
    values = os.environ if environ is None else environ
    missing = sorted({name for name in _REFERENCE.findall(text) if name not in values})
    if missing:
        what = "variable {} is" if len(missing) == 1 else "variables {} are"
        raise ConfigError(f"environment {what.format(', '.join(missing))} not set (needed by {show(text)})")
    return _REFERENCE.sub(lambda found: values[found[1]], text)


def is_reference(value: object) -> bool:
    """Whether it is `${NAME}` and nothing else, which tells nobody anything."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


class _Shown(reprlib.Repr):
    """Values as they stand in YAML, short, with urls redacted."""

    def repr_str(self, x: str, level: int) -> str:
        return repr(cut(redact_url(x)))

    def repr_bool(self, x: bool, level: int) -> str:
        return "true" if x else "false"

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802  (reprlib looks methods up by type name)
        return "null"


def cut(text: str) -> str:
    """At most MAX_SHOWN characters, the last three of them dots if some are missing."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def show(value: object) -> str:
    """A wrong value for an error message: one line, at most about 60 characters, no secrets."""
    return cut(_Shown().repr(value)) if not isinstance(value, str) else _Shown().repr(value)


def did_you_mean(word: str, options: Iterable[str]) -> str | None:
    """The option most likely meant: the same but for case, else the closest spelling, else the one it begins."""
    lowered = {option.lower(): option for option in options}
    if word.lower() in lowered:
        return lowered[word.lower()]
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.65)
    close += [option for option in lowered if len(word) >= 3 and option.startswith(word.lower())]
    return lowered[close[0]] if close else None


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def one_of(value: object, options: Iterable[str]) -> str:
    """Says which words a setting accepts, and which one was probably meant."""
    options = list(options)
    hint = did_you_mean(value, options) if isinstance(value, str) else None
    text = f"must be one of {', '.join(options)} (got {show(value)})"
    return f"{text}; did you mean '{hint}'?" if hint else text
