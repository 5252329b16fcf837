"""The beginning of a text, from which its format and its columns are told."""

ROWS = 2000
TEXT = 1 << 22  # bytes that are looked at


def first_lines(text: bytes) -> list[str]:
    """The whole lines at the beginning of a text, without those that are blank."""
    end = len(text) if len(text) < TEXT else text.rfind(b"\n") + 1 or len(text)
    lines = text[:end].decode("utf-8-sig", "replace").split("\n", ROWS)
    return [line.rstrip("\r") for line in lines[:ROWS] if line.strip()]
