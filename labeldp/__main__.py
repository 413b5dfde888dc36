"""`python -m labeldp`: the command line."""

import sys

from labeldp.pipelines.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
