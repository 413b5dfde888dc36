#!/usr/bin/env bash
# Runs the Flex Template:
#   templates/dataflow/run.sh gs://BUCKET/templates/labeldp.json IMAGE REGION gs://BUCKET/staging \
#       --service-account-email=ACCOUNT --subnetwork=SUBNETWORK --disable-public-ips --dataflow-kms-key=KEY \
#       input='gs://BUCKET/log/*.tfrecord' input_format=tfrecord label=weeks label_min=0 label_max=52 label_step=1 \
#       epsilon=1 noise_key_file=gs://PRIVATE/noise.key output=gs://BUCKET/released
# Arguments with two dashes are flags of `gcloud dataflow flex-template run`, as --FLAG=VALUE; all others are parameters of
# metadata.json, as NAME=VALUE. Afterwards, `labeldp finish gs://BUCKET/released` waits for the job and publishes its
# release.
set -euo pipefail
[ $# -ge 5 ] || { echo "usage: $0 TEMPLATE_FILE_GCS_PATH IMAGE REGION STAGING [--FLAG=VALUE ...] NAME=VALUE ..." >&2; exit 2; }
template=$1 image=$2 region=$3 staging=$4
shift 4
flags=()
for argument in "$@" "sdk_container_image=$image"; do
    case $argument in
        --*) flags+=("$argument") ;;
        # Sets the separator of gcloud to ~, because values may contain commas.
        *=*) flags+=(--parameters "^~^$argument") ;;
        *) echo "$0: $argument is neither --FLAG=VALUE nor NAME=VALUE" >&2; exit 2 ;;
    esac
done
gcloud dataflow flex-template run "labeldp-$(date +%Y%m%d-%H%M%S)" --template-file-gcs-location "$template" \
    --region "$region" --staging-location "$staging" --additional-experiments=use_runner_v2 "${flags[@]}"
