"""``python -m tracelab`` is the ``tracelab`` command."""

import os
import signal


def start() -> None:
    """Run the command; Ctrl-C ends it even while modules are imported, which take it ill."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else whoever started it wants no Ctrl-C
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))
    from tracelab.cli.main import main

    signal.signal(signal.SIGINT, handler)
    main()


if __name__ == "__main__":
    start()
