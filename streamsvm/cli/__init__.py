"""The command line: thin. It parses options, calls the library and renders what comes back."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main() -> None:
    """Entry point. Ends the process at once: taking compiled kernels down in order would cost a quarter of a second."""
    # Where SciPy is installed numba imports it, for linear algebra that is in no kernel here: a third of a second.
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows only ASCII is shown the codes of other letters
            stream.reconfigure(errors="backslashreplace")
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def run() -> int:
    """Run the command in sys.argv. Expected errors become one line on standard error and an exit code, no traceback."""
    from streamsvm.cli.mistaken import advice

    if told := advice(sys.argv[1:]):
        print(f"streamsvm: {told}", file=sys.stderr)
        return 2
    from streamsvm.cli.app import app
    from streamsvm.errors import SourceError, StreamSvmError

    try:
        code = _ended(app)
        if sys.stdout is not None:  # else it was closed from the beginning
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has enough
        return 1
    except StreamSvmError as error:
        for line in str(error).splitlines():
            print(f"streamsvm: {line}", file=sys.stderr)
        return error.exit_code
    except MemoryError:
        print("streamsvm: out of memory; lower --memory or set features.hash_bits", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None and error.errno in UNWRITABLE:
            print(f"streamsvm: standard output: cannot write: {error.strerror}", file=sys.stderr)
            return SourceError.exit_code
        return _unexpected()
    except Exception:
        return _unexpected()


def _ended(app: Callable[[], None]) -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _unexpected() -> int:
    import traceback

    traceback.print_exc()
    return 1
