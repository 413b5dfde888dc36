#!/usr/bin/env python
"""Starts a Beam worker in its own Python environment: the command of --environment_type=PROCESS.

It replaces the `boot` program of Beam's containers. Packages that were staged with the job (--setup_file,
--extra_package) are installed for this worker alone, into a folder that is removed with it. Their dependencies must be
installed already: nothing is downloaded.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_artifact_api_pb2 as artifact_api
from apache_beam.portability.api import beam_artifact_api_pb2_grpc as artifact_service
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

_PACKAGES = (".tar.gz", ".whl")
_PIP = (
    "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-index", "--no-deps",
    "--no-build-isolation", "--target",
)  # fmt: skip


def main() -> None:
    """Runs until the TaskManager closes the connection or ends this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    args = parser.parse_args()
    metadata = [("worker_id", args.id)]
    with grpc.insecure_channel(args.provision_endpoint) as channel:
        info = (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest(), metadata=metadata, timeout=60)
            .info
        )
    os.environ |= {
        "WORKER_ID": args.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
    }
    packages = {staged_name(artifact): artifact for artifact in info.dependencies}
    packages = {name: artifact for name, artifact in packages.items() if name.endswith(_PACKAGES)}
    with contextlib.ExitStack() as until_the_end:
        if packages:
            folder, kept = until_the_end.enter_context(_folder())
            paths = list(fetch(packages, info.artifact_endpoint.url, metadata, folder))
            installed = folder / "installed"
            # pip inherits the descriptor, so the folder also exists until an installation that outlives us has ended.
            subprocess.run([sys.executable, *_PIP, installed, *paths], check=True, pass_fds=[kept])
            sys.path.insert(0, str(installed))
        sdk_worker_main.main([])


@contextlib.contextmanager
def _folder() -> Iterator[tuple[Path, int]]:
    """Creates a folder that is removed when no process has the yielded file descriptor open.

    This works however the process ends, also by SIGKILL: a TaskManager that stops its workers does not wait long.
    """
    folder = tempfile.mkdtemp(prefix="labeldp-worker-")
    with subprocess.Popen(
        ["/bin/sh", "-c", 'cat; rm -rf "$0"', folder],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as cleaner:  # fmt: skip
        assert cleaner.stdin is not None
        yield Path(folder), cleaner.stdin.fileno()


def fetch(
    packages: Mapping[str, beam_runner_api_pb2.ArtifactInformation],
    endpoint: str,
    metadata: list[tuple[str, str]],
    folder: Path,
) -> Iterator[Path]:
    """Downloads staged packages.

    Args:
      packages: Artifacts by file name.
      endpoint: Address of the artifact service.
      metadata: gRPC metadata with the id of the worker.
      folder: Existing folder for the files.

    Yields:
      Path of each file, once it is complete.
    """
    with grpc.insecure_channel(endpoint) as channel:
        service = artifact_service.ArtifactRetrievalServiceStub(channel)
        for name, artifact in packages.items():
            request = artifact_api.GetArtifactRequest(artifact=artifact)
            with open(folder / name, "wb") as file:
                file.writelines(chunk.data for chunk in service.GetArtifact(request, metadata=metadata))
            yield folder / name


def staged_name(artifact: beam_runner_api_pb2.ArtifactInformation) -> str:
    """Reads the file name of a staged artifact.

    Args:
      artifact: The artifact.

    Returns:
      The name without folders; empty if the artifact has none.
    """
    if artifact.role_urn != common_urns.artifact_roles.STAGING_TO.urn:
        return ""
    role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
    return os.path.basename(role.staged_name)


if __name__ == "__main__":
    main()
