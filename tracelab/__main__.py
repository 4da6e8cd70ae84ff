"""``python -m tracelab`` is the ``tracelab`` command."""

from tracelab.cli.main import main

if __name__ == "__main__":
    main()
