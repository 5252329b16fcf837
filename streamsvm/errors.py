"""What can go wrong, as a tree. The command line turns each into one line and an exit code.

StreamSvmError
  ConfigError      (exit 2)  a setting is unknown, wrong, or does not fit another one
  SourceError      (exit 3)  a file or url cannot be found, opened, read or decompressed
  DataError        (exit 4)  a row is malformed, out of range, or has an undeclared class
    DivergedError            the numbers overflowed while learning
  ModelError       (exit 5)  a model, cache or checkpoint file is damaged, foreign or does not fit
"""


class StreamSvmError(Exception):
    """Base of every error a user can cause or cure. Its text is one line that names the place and the remedy."""

    exit_code = 1


class ConfigError(StreamSvmError):
    """A setting is unknown, has a wrong value, or contradicts another one."""

    exit_code = 2


class SourceError(StreamSvmError):
    """The bytes cannot be had: missing, unreadable, truncated, or not what their name says."""

    exit_code = 3


class DataError(StreamSvmError):
    """The bytes are there but a row is not what it should be."""

    exit_code = 4


class DivergedError(DataError):
    """The weights overflowed; names the pass, the row and the step size."""


class ModelError(StreamSvmError):
    """A model, cache or checkpoint file is damaged, foreign, too new, or does not fit the request."""

    exit_code = 5
