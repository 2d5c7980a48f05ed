// The administration protocol of a running card: abi::Op::kAdmin on the card's socket, JSON in,
// JSON out (the reply carries a memfd with the text, ReplyHeader::length is its size; with a status
// != 0 the body is the text of the error as for all ops).
//
//   {"op":"status"}
//     -> {"name","pid","version","seed","topology","uptime_s","socket",
//         "functions":[{"device","kind","representor","pci","mac","ips":[...],"netns","netdev",
//                       "guid","qps","mrs"}], ("netdev": "" unless the card has interfaces)
//         "ports":[{"name","pf"}],
//         "cables":[{"name","a","b","a_to_b":{impairments},"b_to_a":{impairments}}],
//         "cm":{"sessions","ids","ports","connections"},  (RDMA CM; timewait counts as connection)
//         "attached":[{"pid","uid","command","device","qps"}],
//         "captures":[{"id","at","file","frames","dropped"}]}
//     impairments: {"rate_bps","delay_ns","jitter_ns","loss","reorder","duplicate","corrupt","ce",
//                   "verify_icrc"}
//   {"op":"counters"}
//     -> {"time_ns",
//         "ports":{"p0":{"tx_frames","tx_bytes","rx_frames","rx_bytes","dropped"}},
//         "functions":{"mlx5_2":{EngineCounters by their names, "vport_" + PortCounters, and
//                                "cm_" + CmCounters; "netdev_" + Network::Counters where
//                                the function has an interface}},
//         "cables":{"cable0":{"a_to_b":{CableCounters},"b_to_a":{...}}},
//         "host":{"rounds","sleeps","flushes",...}}
//   {"op":"link","cable":"cable0","direction":"both"|"a_to_b"|"b_to_a", impairments}
//     -> the cable's object as in status. Absent impairments keep their value ("direction": both).
//     They may also be texts as in topology files, under the keys of these ("rate":"10Gbit",
//     "delay":"5us", "jitter":"1us", "loss":"1%").
//   {"op":"pcap_start","at":"p0","snap_length":262144} with one descriptor (SCM_RIGHTS) to write
//     pcapng to -> {"id":N}. The capture ends with pcap_stop, when the connection that asked for it
//     closes, or when writing fails.
//   {"op":"pcap_stop","id":N}
//     -> {"id","at","file","frames","dropped","error"}; "error" is "" unless writing has failed.
//   {"op":"flow"}
//     -> {"domains":[{"pf","owner":TEXT|null,"ports":[{"id","name","kind","device"}],
//                     "drops":{"no_root","dropped","loops"},"counters_used","counters_max",
//                     "pipes":[{"id","name","type","root","algorithms","match","actions","forward",
//                               "miss","entries_max","live","retired","hits","misses",
//                               "entries":[{"id","match","actions","forward","counter"}]}]}]}
//   {"op":"flow_trace","pf":"mlx5_1","match":{"outer.ipv4.dst_ip":"10.0.0.1"},"count":5} -> {}
//     Follows the next packets through the pipes of a PF. "match": FIELD: "VALUE" or "VALUE/MASK";
//     "l3_type" and "l4_type" narrow it down as well.
//   {"op":"flow_trace_read","pf":"mlx5_1"}
//     -> {"remaining","packets":[{"number","ingress","length","summary","cut","steps":[
//         {"pipe","branch","outcome":"hit"|"miss","reason","entry","index","matched","changed",
//          "forward"}]}]}
//   {"op":"cc"} -> {"settings":{...},"pfs":[{"pf","line_rate_bps","flows":[{"device","qpn","rate",
//     "slot","internal","cnps"}],"counters":{"tx_handled","tx_events","tx_event_drop",
//     "tx_event_injected_drop", the same for cnp, ack, nack and rtt, "answers","answers_refused",
//     "probes_sent","probes_answered","probes_lost","fallbacks","packets_paced"},
//     "processes":[{"process","pid","command","state","workers","report_only","path","algorithm",
//     "parameters":[{"algorithm","id","text","value","default","min","max","writable"}],
//     "counters":[{"algorithm","id","text","value"}]}]}]}
//   {"op":"cc_set", settings by the names of "settings"} -> as "cc". Durations, rates and shares
//   may
//     be texts. Absent settings keep their value.
//   {"op":"cc_parameter","process":N,"algorithm":0,"id":1,"value":5} -> {"request":N}: it is passed
//     on to the process. {"op":"cc_answer","process":N,"request":N} -> {"done":false}, or true, or
//     the error that the algorithm has answered with.
//   {"op":"shutdown"} -> {} and the card ends in order: clients see EOF.
//
// A request that is wrong gets EINVAL (ENOENT for a cable, tap or capture that does not exist) and
// the text of all that is wrong with it, a line each.
//
// Runtime folder of cards: $RDMALAB_RUNTIME_DIR, else $XDG_RUNTIME_DIR/rdmalab, else /run/rdmalab
// for root, else /tmp/rdmalab-UID. Mode 0700. Card N listens on <folder>/N.sock and holds a lock on
// <folder>/N.lock. In each network namespace that it made it also listens on the abstract socket
// abi::kAbstractSocket. The drop-in finds its card by $RDMALAB_SOCKET (a path, or '@' and an
// abstract name), else <folder>/$RDMALAB_CARD.sock, else the abstract socket, if it is there and
// its owner is root or this user, else <folder>/default.sock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "card/card.h"
#include "card/host/attachments.h"
#include "card/host/capture.h"
#include "card/host/congestion_processes.h"
#include "card/host/descriptor.h"
#include "card/host/loop_counters.h"
#include "card/host/memory_port.h"
#include "card/host/network.h"
#include "card/host/uplinks.h"

namespace rdmalab::card::host {

// An attached program.
struct Client {
    OwnerId owner;
    pid_t pid = 0;
    uid_t uid = 0;
    std::uint32_t device = 0;
};

class ClientList {
public:
    virtual ~ClientList() = default;
    virtual std::vector<Client> clients() const = 0;
};

struct AdminReply {
    int status = 0;
    std::string text;          // with a status
    UniqueFd body;             // else: a memfd with JSON
    std::uint32_t length = 0;  // of `body`
};

class Admin {
public:
    struct Parts {
        Card& card;
        Captures& captures;
        Attachments& attachments;
        CongestionProcesses& congestion;
        const ProcessMemory& memory;
        const LoopCounters& loop;
        std::function<void()> stop;
        std::string topology, socket;
        const Network* network = nullptr;  // null: none
        const Uplinks* uplinks = nullptr;  // null: none
    };

    explicit Admin(Parts parts);
    // Who "status" lists as attached; the server, once it is there.
    void set_clients(const ClientList* clients) { clients_ = clients; }

    // `connection` owns the captures that it starts; `attached` came with the request.
    AdminReply handle(std::uint64_t connection, const std::string& text, UniqueFd attached);

private:
    using Json = nlohmann::json;
    Result<Json> dispatch(std::uint64_t connection, const Json& request, UniqueFd attached);
    Json status() const;
    Json counters() const;
    Json port_status(std::uint32_t index) const;
    Json function_status(std::uint32_t index) const;
    bool is_behind_uplink(const FunctionConfig& function) const;
    bool has_netdev(std::uint32_t function) const;
    Json cable_status(std::uint32_t index) const;
    Json attached_programs() const;
    Json captures() const;
    Json host_counters() const;
    Result<Json> link(const Json& request);
    Result<Json> congestion(const Json& request);
    Json congestion_status() const;
    Result<Json> congestion_parameter(const Json& request);
    Result<Json> congestion_answer(const Json& request) const;
    Result<Json> start_capture(std::uint64_t connection, const Json& request, UniqueFd out);
    Result<Json> stop_capture(std::uint64_t connection, const Json& request);

    Parts parts_;
    const ClientList* clients_ = nullptr;
    Instant started_;
};

}  // namespace rdmalab::card::host
