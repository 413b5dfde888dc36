"""Entry point of the Flex Template launcher: runs `labeldp privatize` on Dataflow with the template's parameters."""

import sys

from labeldp.pipelines.cli.commands import main
from labeldp.templates.dataflow_metadata import arguments

if __name__ == "__main__":
    sys.exit(main(["privatize", "--runner=DataflowRunner", *arguments(sys.argv[1:])]))
