"""The command line: thin. It parses options, calls the library and renders what comes back."""

import sys


def main() -> None:
    """Entry point: expected errors become one line on standard error and an exit code, never a traceback."""
    from streamsvm.cli.app import app
    from streamsvm.errors import StreamSvmError

    try:
        app()
    except StreamSvmError as error:
        for line in str(error).splitlines():
            print(f"streamsvm: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("streamsvm: interrupted; no model was written", file=sys.stderr)
        sys.exit(130)
    except MemoryError:
        print("streamsvm: out of memory; lower --memory or set features.hash_bits", file=sys.stderr)
        sys.exit(1)
