#!/usr/bin/env bash
# Builds the image and the Flex Template: templates/dataflow/build.sh IMAGE gs://BUCKET/templates/labeldp.json
set -euo pipefail
[ $# = 2 ] || { echo "usage: $0 IMAGE TEMPLATE_FILE_GCS_PATH" >&2; exit 2; }
cd "$(dirname "$0")/../.."
docker build -f templates/dataflow/Dockerfile -t "$1" .
docker push "$1"
gcloud dataflow flex-template build "$2" --image "$1" --sdk-language PYTHON \
    --metadata-file templates/dataflow/metadata.json
