// The administration protocol of a running card: abi::Op::kAdmin on the card's socket, JSON in,
// JSON out (the reply carries a memfd with the text, ReplyHeader::length is its size; with a status
// != 0 the body is the text of the error as for all ops).
//
// Requests:
//   {"op":"status"}    -> {"name","pid","version","seed","topology","uptime_s","socket",
//                          "functions":[{"device","kind","representor","pci","mac","ips":[...],"netns","guid","qps","mrs"}],
//                          "ports":[{"name","pf"}],
//                          "cables":[{"name","a","b","a_to_b":{impairments},"b_to_a":{impairments}}],
//                          "attached":[{"pid","uid","command","device","qps"}],
//                          "captures":[{"at","file"}]}
//     impairments:
//     {"rate_bps","delay_ns","jitter_ns","loss","reorder","duplicate","corrupt","ce","verify_icrc"}
//   {"op":"counters"}  ->
//   {"time_ns","ports":{"p0":{"tx_frames","tx_bytes","rx_frames","rx_bytes","dropped"}},
//                          "functions":{"mlx5_2":{all of EngineCounters by their names, and
//                          "vport_" + PortCounters}},
//                          "cables":{"cable0":{"a_to_b":{CableCounters},"b_to_a":{...}}},
//                          "host":{"rounds","sleeps","flushes",...}}
//   {"op":"link","cable":"cable0","direction":"both"|"a_to_b"|"b_to_a", any of the impairment keys
//   above; absent keys keep
//     their value} -> the cable's object as in status
//   {"op":"pcap_start","at":"p0","snap_length":262144} with one descriptor (SCM_RIGHTS) to write
//   pcapng to -> {"id":N}
//     the card stops on pcap_stop, when the requesting connection closes, or when writing fails
//   {"op":"pcap_stop","id":N}
//   {"op":"shutdown"}  -> {} and the card ends in order: clients see EOF
#pragma once

namespace rdmalab::card::host {
// Runtime folder of cards: $RDMALAB_RUNTIME_DIR, else $XDG_RUNTIME_DIR/rdmalab, else /run/rdmalab
// for root, else /tmp/rdmalab-UID. Mode 0700. Card N listens on <folder>/N.sock and holds a lock on
// <folder>/N.lock. The drop-in finds its card by $RDMALAB_SOCKET (a path), else
// <folder>/$RDMALAB_CARD.sock, else <folder>/default.sock.
}
