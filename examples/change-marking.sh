#!/bin/bash
# While examples/path-steering.sh runs: swaps the marking of both paths, and shows where the shares go.
#
#   examples/change-marking.sh INGRESS_PID PCC_LOG
set -euo pipefail

flow_steer --tell "$1" path0-percent 0.05 path1-percent 0.025
flow_steer --tell "$1" status
sleep "${SECONDS_TO_WAIT:-10}"
grep "share applied" "$2" | tail -n 5
