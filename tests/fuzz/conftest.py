"""The folder of the fuzzer on the Python path: its modules import each other by name, as those of a script."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
