// SOCK_DGRAM over UD.
//
// Each datagram begins with a DatagramHeader that says which socket it is from. The QP behind an
// address is found by a service query (rdma_connect in the UDP port space), which the other socket
// answers whenever its program is in a call to this library; the answer is kept. A socket that gets
// a datagram learns the way back from the datagram itself.
//
// A socket has one QP per device that it uses: one if it is bound to an address of a device, more
// if it is bound to the wildcard.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "card/cm_abi.h"
#include "verbs/rdmacm/rsockets/buffer.h"
#include "verbs/rdmacm/rsockets/socket.h"

namespace rdmalab::rdmacm {

struct DatagramHeader {
    static constexpr std::uint8_t kVersion = 1;
    std::uint8_t version = kVersion;
    std::uint8_t family = 0;  // AF_INET or AF_INET6
    Be16 port;
    std::uint8_t address[16] = {};  // IPv4 as ::ffff:a.b.c.d
};
static_assert(sizeof(DatagramHeader) == 20);

class DatagramSocket : public Socket {
public:
    explicit DatagramSocket(int domain) : Socket(domain, SOCK_DGRAM) {}
    ~DatagramSocket() override;

    int bind(const sockaddr* address) override;
    int connect(const sockaddr* address) override;
    int shutdown(int how) override;
    void close() override;
    ssize_t send(const iovec* pieces, std::size_t count, int flags, const sockaddr* to) override;
    ssize_t receive(const iovec* pieces, std::size_t count, int flags, sockaddr* from,
                    socklen_t* from_length) override;
    int local_address(sockaddr* address, socklen_t* length) override;
    int peer_address(sockaddr* address, socklen_t* length) override;

protected:
    bool progress() override;
    short ready_now() override;
    bool arm_queues() override;
    void drain_queues() override;
    int apply_option(int level, int name, int value) override;
    int pending_error() override;

private:
    // The QP on one device, with its buffers.
    struct Port {
        ~Port();
        rdma_cm_id* id = nullptr;  // bound to the device, owns the QP
        abi::CmAddress address{};  // of this socket on the device
        Buffer receives, sends;
        std::vector<std::uint32_t> free_sends;
        std::size_t payload_max = 0;
        std::uint32_t slot_bytes = 0;
    };
    enum class Progress { kAddress, kRoute, kQuery, kReady, kFailed };
    struct Destination {
        ~Destination();
        abi::CmAddress address{};
        Progress state = Progress::kAddress;
        int error = 0;
        rdma_cm_id* id = nullptr;  // of the query
        Port* port = nullptr;
        ibv_ah* ah = nullptr;
        std::uint32_t qp_num = 0, qkey = 0;
    };
    struct Arrival {
        Port* port;
        std::uint32_t slot;
        std::uint32_t length;  // of the payload
        abi::CmAddress from;
    };

    int ensure_bound();
    int make_listener();
    Port* port_on(rdma_cm_id& id);
    int open_port(Port& port, const abi::CmAddress& address);
    int post_receive(Port& port, std::uint32_t slot);
    void take_completions(Port& port, bool& found);
    void take_datagram(Port& port, const ibv_wc& wc);
    void learn_sender(Port& port, const ibv_wc& wc, const abi::CmAddress& from);

    bool read_events();
    void answer_query(rdma_cm_event& event);
    void continue_query(Destination& destination, const rdma_cm_event& event);
    void fail_query(Destination& destination, int error);
    Destination* find(const abi::CmAddress& address);
    Destination* start_query(const abi::CmAddress& address);
    Destination* resolve(Lock& lock, const abi::CmAddress& address);
    int post_datagram(Destination& destination, const iovec* pieces, std::size_t count,
                      std::size_t length);

    rdma_event_channel* channel_ = nullptr;
    rdma_cm_id* listener_ = nullptr;
    bool is_bound_ = false, is_listening_ = false;
    int error_ = 0;
    abi::CmAddress peer_{};  // family 0: not connected
    std::vector<std::unique_ptr<Port>> ports_;
    std::vector<std::unique_ptr<Destination>> destinations_;
    std::deque<Arrival> arrivals_;
};

}  // namespace rdmalab::rdmacm
