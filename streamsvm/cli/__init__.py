"""The command line: thin. It parses options, calls the library and renders what comes back."""

import contextlib
import os
import sys


def main() -> None:
    """Entry point. Ends the process at once: taking compiled kernels down in order would cost a quarter of a second."""
    # Where SciPy is installed numba imports it, for linear algebra that is in no kernel here: a third of a second.
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run() -> int:
    """Run the command in sys.argv. Expected errors become one line on standard error and an exit code, no traceback."""
    from streamsvm.cli.mistaken import advice

    if told := advice(sys.argv[1:]):
        print(f"streamsvm: {told}", file=sys.stderr)
        return 2
    from streamsvm.cli.app import app
    from streamsvm.errors import StreamSvmError

    try:
        app()
    except StreamSvmError as error:
        for line in str(error).splitlines():
            print(f"streamsvm: {line}", file=sys.stderr)
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except MemoryError:
        print("streamsvm: out of memory; lower --memory or set features.hash_bits", file=sys.stderr)
        return 1
    except Exception:
        import traceback

        traceback.print_exc()
        return 1
    return 0
