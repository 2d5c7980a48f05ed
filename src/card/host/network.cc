#include "card/host/network.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <iterator>

#include "card/host/clock.h"
#include "card/host/subprocess.h"
#include "card/socket_abi.h"

namespace rdmalab::card::host {
namespace {

// Frames of one interface that are handed on before the card does other work.
constexpr int kBatchFrames = 64;
constexpr int kBacklog = 256;
constexpr std::size_t kFrameMax = 65'536 + 64;
// How long the card looks out for the next frame after one.
constexpr Duration kBusyTime = microseconds(200);

bool kernel_has_ipv6() { return ::access("/proc/net/if_inet6", F_OK) == 0; }

// Commands of `ip -batch`. Addresses are usable at once: nobody else on a card has them.
std::string commands_for(const FunctionConfig& function, std::uint32_t mtu) {
    const std::string& dev = function.netdev;
    std::string text =
        fmt::format("link set dev {} address {} mtu {}\n", dev, function.mac.to_string(), mtu);
    const bool ipv6 = kernel_has_ipv6();
    if (ipv6) text += fmt::format("link set dev {} addrgenmode none\n", dev);
    text += fmt::format("link set dev {} up\n", dev);
    if (ipv6) {
        text += fmt::format("address add {}/64 dev {} nodad\n",
                            Gid::link_local(function.mac).to_string(), dev);
    }
    for (std::size_t i = 0; i < function.ips.size(); ++i) {
        const Gid& ip = function.ips[i];
        if (!ip.is_ipv4() && !ipv6) continue;
        text += fmt::format("address add {}/{} dev {}{}\n", ip.to_string(),
                            function.prefix_lengths[i], dev, ip.is_ipv4() ? "" : " nodad");
    }
    return text;
}

// A cache of the dynamic linker (ld.so(8)) as of this machine, but with `libraries` first.
Result<std::string> linker_cache(const std::string& libraries, const std::string& folder) {
    const std::string settings = folder + "/ld.so.conf.new", cache = folder + "/ld.so.cache.new";
    std::ofstream(settings) << libraries << '\n'
                            << std::ifstream("/etc/ld.so.conf").rdbuf() << '\n';
    Status done = run_program({"/sbin/ldconfig", "-X", "-f", settings, "-C", cache});
    std::ifstream file(cache, std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    ::unlink(settings.c_str());
    ::unlink(cache.c_str());
    if (!done) return done.error();
    return content;
}

}  // namespace

Network::Network(const CardConfig& config)
    : config_(config),
      home_(network_namespace_of(::getpid())),
      netdevs_(config.functions.size()),
      buffer_(kFrameMax) {}

Result<std::unique_ptr<Network>> Network::create(const CardConfig& config,
                                                 const std::string& folder,
                                                 const std::string& libraries) {
    std::unique_ptr<Network> network(new Network(config));
    auto namespaces = Namespaces::open(Namespaces::record_of(folder, config.name));
    if (!namespaces.ok()) return namespaces.error();
    network->namespaces_ = std::move(*namespaces);
    std::set<std::string> names;
    for (const FunctionConfig& function : config.functions) {
        const std::string& netns = function.netns;
        if (netns.empty() || !names.insert(netns).second) continue;
        const auto furnish = [&] { return network->furnish(netns); };
        if (Status made = network->namespaces_->make(netns, furnish); !made) return made.error();
    }
    if (!libraries.empty()) network->show_libraries(names, folder, libraries);
    return network;
}

Network::~Network() { stop(); }

// Within the namespace.
Status Network::furnish(const std::string& netns) {
    std::string commands = "link set dev lo up\n";
    for (std::uint32_t i = 0; i < config_.functions.size(); ++i) {
        const FunctionConfig& function = config_.functions[i];
        if (function.netns != netns) continue;
        auto tap = Tap::create(function.netdev);
        if (!tap.ok()) return tap.error();
        netdevs_[i] = std::make_unique<Netdev>(Netdev{i, std::move(*tap), {}});
        commands += commands_for(function, config_.netdev_mtu);
    }
    Status done = run_program({"ip", "-batch", "-"}, commands);
    if (done) return listen();
    return Error{done.code(),
                 fmt::format("cannot set up network namespace {}: {}", netns, done.error().text)};
}

// Within the namespace. Its programs find the card by this socket, whatever their environment says
// about users and folders.
Status Network::listen() {
    UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    constexpr std::string_view kName = abi::kAbstractSocket;
    kName.copy(address.sun_path + 1, kName.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kName.size());
    if (!listener ||
        ::bind(listener.value(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener.value(), kBacklog) != 0) {
        return system_error("cannot listen in the network namespace");
    }
    listeners_.push_back(std::move(listener));
    return {};
}

// ip-netns(8) shows the files of /etc/netns/NAME in place of those in /etc. With a cache of the
// dynamic linker there that has our libraries first, unmodified programs need no environment. It is
// a convenience: without it `rdmalab run` serves them.
void Network::show_libraries(const std::set<std::string>& namespaces, const std::string& folder,
                             const std::string& libraries) {
    const auto cache = linker_cache(libraries, folder);
    if (!cache.ok()) return spdlog::warn("programs need 'rdmalab run': {}", cache.error().text);
    for (const std::string& name : namespaces) {
        if (Status placed = namespaces_->place_file(name, "ld.so.cache", *cache); !placed) {
            spdlog::warn("programs in {} need 'rdmalab run': {}", name, placed.error().text);
        }
    }
}

Status Network::start(Card& card, Poller& poller, transport::MemoryPort& memory) {
    card_ = &card;
    poller_ = &poller;
    memory_ = &memory;
    for (const auto& netdev : netdevs_) {
        if (!netdev) continue;
        netdev->watch = poller.add(netdev->tap.fd(), EPOLLIN,
                                   [this, one = netdev.get()](std::uint32_t) { receive(*one); });
        if (netdev->watch == Poller::kNone) {
            return system_error(fmt::format("cannot watch network interface {}",
                                            config_.functions[netdev->function].netdev));
        }
    }
    return {};
}

void Network::stop() {
    for (const auto& netdev : netdevs_) {
        if (!netdev || netdev->watch == Poller::kNone) continue;
        poller_->remove(netdev->watch);
        netdev->watch = Poller::kNone;
    }
}

bool Network::receive(Netdev& netdev) {
    const Instant now = monotonic_now();
    int count = 0;
    for (; count < kBatchFrames; ++count) {
        const std::size_t length = netdev.tap.read(buffer_);
        if (length == 0) break;
        ++netdev.counters.tx_frames;
        netdev.counters.tx_bytes += length;
        if (!card_->handle_netdev_frame(netdev.function, ByteView(buffer_).first(length), now)) {
            ++netdev.counters.malformed;
        }
    }
    if (netdev.tap.is_gone()) forget(netdev);
    if (count > 0) last_frame_ = now;
    return count > 0;
}

// A descriptor without its interface would report an error for ever.
void Network::forget(Netdev& netdev) {
    if (netdev.watch == Poller::kNone) return;
    poller_->remove(netdev.watch);
    netdev.watch = Poller::kNone;
    const FunctionConfig& function = config_.functions[netdev.function];
    spdlog::warn(
        "network interface {} in {} has been deleted; it comes back with the card's next "
        "start",
        function.netdev, function.netns);
}

bool Network::poll() {
    bool any = false;
    for (const auto& netdev : netdevs_) {
        if (netdev) any |= receive(*netdev);
    }
    return any;
}

bool Network::is_busy(Instant now) const { return now - last_frame_ < kBusyTime; }

bool Network::deliver(std::uint32_t function, const wire::Frame& frame) {
    Netdev* const netdev = netdevs_[function].get();
    if (netdev == nullptr || memory_ == nullptr) return false;
    if (netdev->tap.write(frame, *memory_)) {
        ++netdev->counters.rx_frames;
        netdev->counters.rx_bytes += frame.header_length + frame.payload_length;
    } else {
        ++netdev->counters.rx_dropped;
    }
    return true;
}

// --- Who sees what

std::uint64_t Network::devices_in(const std::string& netns) const {
    std::uint64_t devices = 0;
    for (std::size_t i = 0; i < config_.functions.size(); ++i) {
        if (config_.functions[i].netns == netns) devices |= std::uint64_t{1} << i;
    }
    return devices;
}

std::uint64_t Network::visible_to(pid_t pid) const {
    const NamespaceId id = network_namespace_of(pid);
    if (id == home_) return devices_in("");
    const std::string name = namespaces_->name_of(id);
    return name.empty() ? 0 : devices_in(name);
}

std::string Network::place_of(pid_t pid) const {
    const NamespaceId id = network_namespace_of(pid);
    if (id == home_) return "the card's own network namespace";
    const std::string name = namespaces_->name_of(id);
    return name.empty() ? "a network namespace that is not of this card"
                        : "network namespace " + name;
}

std::string Network::place_of(const FunctionConfig& function) {
    return function.netns.empty() ? "the card's own network namespace"
                                  : "network namespace " + function.netns;
}

}  // namespace rdmalab::card::host
