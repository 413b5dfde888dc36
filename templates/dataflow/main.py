"""Entry point of the Flex Template launcher: submits `labeldp privatize` to Dataflow with the template's parameters.

The service starts the job once the launcher has returned: `labeldp finish` waits for it and publishes the release.
"""

import sys

from labeldp.pipelines.cli.commands import main
from labeldp.templates.dataflow_metadata import arguments

if __name__ == "__main__":
    sys.exit(main(["privatize", "--runner=DataflowRunner", "--no_wait_until_finish", *arguments(sys.argv[1:])]))
