#!/bin/bash
# The path steering tutorial by hand, without privileges: a card, flow_steer in front of two receivers, pcc behind the
# sender, four unmodified ib_write_bw. Runs for SECONDS_OF_TRAFFIC (20), then shows where the shares went.
#
#   examples/path-steering.sh [FOLDER]    FOLDER gets the logs; rdmalab, flow_steer and pcc are found in PATH
set -euo pipefail

logs=${1:-$(mktemp -d)}
seconds=${SECONDS_OF_TRAFFIC:-20}
card=steering-$$
mkdir -p "$logs"

cleanup() {
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    rdmalab down --name "$card" >/dev/null
}

# Waits until a log holds a line.
await() {
    local log=$1 text=$2 i
    for ((i = 0; i < 600; ++i)); do
        grep -q -F -- "$text" "$log" && return
        sleep 0.1
    done
    echo "$log never said: $text" >&2
    cat "$log" >&2
    return 1
}

# One program that may use one device only: so its traffic crosses the cable.
on() {
    local device=$1
    shift
    RDMALAB_DEVICES=$device exec rdmalab run --name "$card" -- "$@"
}

rdmalab up --name "$card" >/dev/null
trap cleanup EXIT
export RDMALAB_CARD=$card

flow_steer -r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.0,pf0sf4 \
    --path0-ip 10.0.0.1 --path1-ip 10.0.0.11 --role ingress \
    --path0-percent 0.025 --path1-percent 0.05 >"$logs/ingress.log" 2>&1 &
await "$logs/ingress.log" "steer started (role=ingress"

pcc --device mlx5_1 -r pci/0000:03:00.1,pf1sf0 \
    --path0-ip 10.0.0.1 --path1-ip 10.0.0.11 >"$logs/pcc.log" 2>&1 &
await "$logs/pcc.log" "Info: PCC host status Active"

on mlx5_2 ib_write_bw -d mlx5_2 -R --report_gbits --run_infinitely >"$logs/blue-server.log" 2>&1 &
on mlx5_4 ib_write_bw -d mlx5_4 -R --report_gbits --run_infinitely >"$logs/green-server.log" 2>&1 &
# RDMA CM knows the receivers once they hold a port each.
until [[ $(rdmalab status --name "$card" --json | grep -c '"ports":2\|"ports": 2') -gt 0 ]]; do sleep 0.1; done
on mlx5_3 ib_write_bw -d mlx5_3 -R -F 10.0.0.1 --report_gbits --run_infinitely >"$logs/blue.log" 2>&1 &
on mlx5_3 ib_write_bw -d mlx5_3 -R -F 10.0.0.11 --report_gbits --run_infinitely >"$logs/green.log" 2>&1 &

sleep "$seconds"
grep -h -E "REQ grouping|share applied" "$logs/pcc.log"
tail -n 2 "$logs/ingress.log"
grep "egress assigned counters" "$logs/pcc.log" | tail -n 1
