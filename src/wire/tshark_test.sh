#!/bin/sh
# tshark must decode every kind of frame that the room can make, with the ICRC of the definition and
# without a complaint. Usage: tshark_test.sh WIRE_SAMPLES
set -eu

samples=$1
command -v tshark >/dev/null || { echo "tshark is missing: install the package tshark"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$samples" "$work/samples.pcapng" >"$work/expected"
tshark -r "$work/samples.pcapng" -T fields -e infiniband.bth.opcode -e infiniband.bth.padcnt \
    -e infiniband.bth.destqp -e infiniband.bth.psn -e infiniband.invariant.crc \
    >"$work/found" 2>"$work/errors"
diff "$work/expected" "$work/found"

# IP checksums are not checked by default, and a UDP checksum of zero, which RoCEv2 has over IPv6
# too, is not accepted by default.
tshark -r "$work/samples.pcapng" -o ip.check_checksum:TRUE -o udp.ignore_ipv6_zero_checksum:TRUE \
    -T fields -e frame.number -e _ws.expert.message -Y '_ws.malformed or _ws.expert' \
    >"$work/complaints" 2>"$work/errors"
if [ -s "$work/complaints" ]; then
    echo "tshark complains about:"
    cat "$work/complaints"
    exit 1
fi
echo "$(wc -l <"$work/expected") frames decoded"
