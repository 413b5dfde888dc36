#!/usr/bin/env bash
# Runs the Flex Template:
#   templates/dataflow/run.sh gs://BUCKET/templates/labeldp.json IMAGE REGION gs://BUCKET/staging \
#       input='gs://BUCKET/log/*.tfrecord' input_format=tfrecord label=weeks label_min=0 label_max=52 label_step=1 \
#       epsilon=1 noise_key_file=gs://PRIVATE/noise.key output=gs://BUCKET/released
# All further arguments are parameters of metadata.json, as NAME=VALUE. Afterwards, `labeldp finish gs://BUCKET/released`
# waits for the job and publishes its release.
set -euo pipefail
[ $# -ge 5 ] || { echo "usage: $0 TEMPLATE_FILE_GCS_PATH IMAGE REGION STAGING NAME=VALUE ..." >&2; exit 2; }
template=$1 image=$2 region=$3 staging=$4
shift 4
parameters=()
# Sets the separator of gcloud to ~, because values may contain commas.
for pair in "$@" "sdk_container_image=$image"; do parameters+=(--parameters "^~^$pair"); done
gcloud dataflow flex-template run "labeldp-$(date +%Y%m%d-%H%M%S)" --template-file-gcs-location "$template" \
    --region "$region" --staging-location "$staging" --additional-experiments=use_runner_v2 "${parameters[@]}"
