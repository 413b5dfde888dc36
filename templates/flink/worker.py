#!/usr/bin/env python
"""Starts a Beam worker in the Python environment it is found in: the command of --environment_type PROCESS.

What the `boot` program of Beam's containers does, less the installation of packages: labeldp is installed already.
"""

import argparse
import os

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format


def main() -> None:
    """Runs until the TaskManager closes the connection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    args = parser.parse_args()
    with grpc.insecure_channel(args.provision_endpoint) as channel:
        info = (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(), metadata=[("worker_id", args.id)], timeout=60
            )
            .info
        )
    os.environ |= {
        "WORKER_ID": args.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
    }
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
