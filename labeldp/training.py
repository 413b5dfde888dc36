"""Kit for those who train on a release, `labeldp.pipelines.training` under the name that users import."""

from labeldp.pipelines.training import *  # noqa: F403
from labeldp.pipelines.training import __all__  # noqa: F401
