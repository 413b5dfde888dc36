"""Entry point of the Flex Template launcher: runs `labeldp privatize` on Dataflow with the template's parameters."""

import sys

from labeldp.pipelines.job.privatize_command import run_privatize
from labeldp.templates.dataflow_metadata import arguments

if __name__ == "__main__":
    sys.exit(run_privatize(["--runner=DataflowRunner", *arguments(sys.argv[1:])]))
