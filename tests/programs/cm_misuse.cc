// What librdmacm refuses: data that does not fit into a message, calls in the wrong order,
// addresses and options that make no sense. Each must fail with the errno value that is expected,
// and what is right afterwards must still work: both connections are made and ended.
//
//   cm_misuse IP

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cm_kit.h"

namespace rdmalab::programs {
namespace {

constexpr const char* kPort = "7471";
int wrong = 0;

// A call that returns -1 with errno, as all of librdmacm's do.
void expect(const char* what, int status, int expected) {
    const int found = status == 0 ? 0 : errno;
    if (found == expected) return;
    std::printf("%s: expected %s, found %s\n", what, strerrorname_np(expected),
                found == 0 ? "success" : strerrorname_np(found));
    ++wrong;
}

std::array<char, 255> filler{};

rdma_conn_param with_data(std::size_t length) {
    rdma_conn_param parameters = connection_parameters();
    parameters.private_data = filler.data();
    parameters.private_data_len = static_cast<std::uint8_t>(length);
    return parameters;
}

void make_qp(rdma_cm_id* id, ibv_qp_type type) {
    ibv_qp_init_attr init{};
    init.qp_type = type;
    init.cap = {1, 1, 1, 1, 0};
    check(rdma_create_qp(id, nullptr, &init), "rdma_create_qp");
}

void resolve(const EventChannel& channel, rdma_cm_id* id, const char* ip) {
    sockaddr_in peer = ip_endpoint(ip, kPort);
    check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&peer), 2'000),
          "rdma_resolve_addr");
    channel.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 2'000), "rdma_resolve_route");
    channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void fresh_ids(const char* ip) {
    const EventChannel channel;
    rdma_conn_param parameters = connection_parameters();
    rdma_cm_id* const id = channel.create_id(RDMA_PS_TCP);
    expect("connect without an address", rdma_connect(id, &parameters), EINVAL);
    expect("accept without a request", rdma_accept(id, &parameters), EINVAL);
    expect("reject without a request", rdma_reject(id, nullptr, 0), EINVAL);
    expect("disconnect without a connection", rdma_disconnect(id), EINVAL);
    expect("establish without a reply", rdma_establish(id), EINVAL);
    expect("resolve a route without an address", rdma_resolve_route(id, 100), EINVAL);
    std::uint8_t tos = 0;
    expect("an unknown option", rdma_set_option(id, RDMA_OPTION_ID, 99, &tos, sizeof tos), ENOSYS);
    expect("an option of the wrong size",
           rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 0), EINVAL);
    sockaddr_in foreign = ip_endpoint("192.0.2.1", kPort);
    expect("bind to an address of nobody",
           rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&foreign)), EADDRNOTAVAIL);
    foreign.sin_family = AF_UNIX;
    expect("bind to an address of another family",
           rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&foreign)), EINVAL);
    ibv_qp_init_attr init{};
    expect("a QP without a device", rdma_create_qp(id, nullptr, &init), EINVAL);

    sockaddr_in address = ip_endpoint(ip, kPort);
    check(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), "rdma_bind_addr");
    expect("bind twice", rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), EINVAL);
    rdma_cm_id* const other = channel.create_id(RDMA_PS_TCP);
    expect("bind to a port that is taken",
           rdma_bind_addr(other, reinterpret_cast<sockaddr*>(&address)), EADDRINUSE);
    check(rdma_listen(id, 1), "rdma_listen");
    expect("listen twice", rdma_listen(id, 1), EINVAL);
    expect("connect a listener", rdma_connect(id, &parameters), EINVAL);
    check(rdma_destroy_id(other), "rdma_destroy_id");
    check(rdma_destroy_id(id), "rdma_destroy_id");
}

// The limits are those of rdma_connect(3), rdma_accept(3) and rdma_reject(3).
struct Limits {
    rdma_port_space space;
    ibv_qp_type type;
    std::size_t connect, accept, reject;
};

// Connects once; the passive side rejects or accepts. Each message first with a byte too many.
void data_of_messages(const Limits& limits, const char* server_ip, bool accepts) {
    const EventChannel passive, active;
    rdma_cm_id* const listener = listen_on(passive, limits.space, ip_endpoint(server_ip, kPort), 4);
    rdma_cm_id* const id = active.create_id(limits.space);
    resolve(active, id, server_ip);
    make_qp(id, limits.type);
    rdma_conn_param parameters = with_data(limits.connect + 1);
    expect("connect with too much data", rdma_connect(id, &parameters), EINVAL);
    parameters = with_data(limits.connect);
    check(rdma_connect(id, &parameters), "rdma_connect");

    rdma_cm_id* const request = passive.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    const auto size = [](std::size_t length) { return static_cast<std::uint8_t>(length); };
    expect("reject with too much data",
           rdma_reject(request, filler.data(), size(limits.reject + 1)), EINVAL);
    make_qp(request, limits.type);
    parameters = with_data(limits.accept + 1);
    parameters.qp_num = request->qp->qp_num;
    if (!accepts) {
        // An accept that fails costs the QP, so it is tried on what will be rejected.
        expect("accept with too much data", rdma_accept(request, &parameters), EINVAL);
        check(rdma_reject(request, filler.data(), size(limits.reject)), "rdma_reject");
        active.expect(limits.type == IBV_QPT_UD ? RDMA_CM_EVENT_UNREACHABLE
                                                : RDMA_CM_EVENT_REJECTED);
        expect("accept what was rejected", rdma_accept(request, &parameters), EINVAL);
    } else {
        parameters.private_data_len = size(limits.accept);
        check(rdma_accept(request, &parameters), "rdma_accept");
        expect("accept twice", rdma_accept(request, &parameters), EINVAL);
        expect("reject what was accepted", rdma_reject(request, nullptr, 0), EINVAL);
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        if (limits.type != IBV_QPT_UD) {
            passive.expect(RDMA_CM_EVENT_ESTABLISHED);
            expect("connect twice", rdma_connect(id, &parameters), EINVAL);
            check(rdma_disconnect(id), "rdma_disconnect");
            active.expect(RDMA_CM_EVENT_DISCONNECTED);
            passive.expect(RDMA_CM_EVENT_DISCONNECTED);
        }
    }
    for (rdma_cm_id* each : {id, request}) {
        rdma_destroy_qp(each);
        check(rdma_destroy_id(each), "rdma_destroy_id");
    }
    check(rdma_destroy_id(listener), "rdma_destroy_id");
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    if (argc != 2) fail(kUsage, "usage: cm_misuse IP");
    fresh_ids(argv[1]);
    for (const bool accepts : {false, true}) {
        data_of_messages({RDMA_PS_TCP, IBV_QPT_RC, 56, 196, 148}, argv[1], accepts);
        data_of_messages({RDMA_PS_UDP, IBV_QPT_UD, 180, 136, 136}, argv[1], accepts);
    }
    if (wrong == 0) std::printf("all as expected\n");
    return wrong == 0 ? 0 : kWrongStatus;
}
