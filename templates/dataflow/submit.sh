#!/usr/bin/env bash
# Runs the job without a container image: Beam builds the package from this checkout and stages it for the workers.
#   templates/dataflow/submit.sh PROJECT REGION gs://BUCKET/temp --input 'gs://BUCKET/log/*.parquet' ...
# All further arguments are flags of `labeldp privatize`.
set -euo pipefail
[ $# -ge 4 ] || { echo "usage: $0 PROJECT REGION TEMP_LOCATION FLAG ..." >&2; exit 2; }
project=$1 region=$2 temp=$3
shift 3
exec labeldp privatize --runner DataflowRunner --project "$project" --region "$region" --temp_location "$temp" \
    --setup_file "$(cd "$(dirname "$0")/../.." && pwd)/setup.py" "$@"
