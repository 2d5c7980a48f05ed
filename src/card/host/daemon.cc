#include "card/host/daemon.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>

namespace rdmalab::card::host {

Result<std::unique_ptr<Daemon>> Daemon::start(const Options& given) {
    std::unique_ptr<Daemon> daemon(new Daemon());
    Options options = given;
    if (Status opened = daemon->open_descriptors(options); !opened) return opened.error();
    if (Status opened = daemon->open_network(options); !opened) return opened.error();
    if (Status opened = daemon->open_uplinks(options.config); !opened) return opened.error();
    daemon->assemble(options);
    if (Status begun = daemon->begin(); !begun) return begun.error();
    return daemon;
}

Daemon::~Daemon() {
    // Clients go while the card that they are detached from is still there.
    if (server_) server_->close_all();
}

void Daemon::run() { loop_->run(); }

void Daemon::stop() { loop_->stop(); }

Status Daemon::open_descriptors(const Options& options) {
    auto socket = CardSocket::claim(options.folder, options.config.name);
    if (!socket.ok()) return socket.error();
    socket_ = std::move(*socket);
    if (Status opened = poller_.open(); !opened) return opened;
    bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell_) return system_error("cannot create the bell");
    auto page = CardPageMemory::create();
    if (!page.ok()) return page.error();
    page_ = std::move(*page);
    return {};
}

Status Daemon::open_network(const Options& options) {
    if (!options.netns) {
        return Namespaces::remove_recorded(
            Namespaces::record_of(options.folder, options.config.name));
    }
    auto network = Network::create(options.config, options.folder, options.libraries);
    if (!network.ok()) return network.error();
    network_ = std::move(*network);
    return {};
}

Status Daemon::open_uplinks(CardConfig& config) {
    const bool any = std::any_of(config.ports.begin(), config.ports.end(),
                                 [](const PortConfig& port) { return !port.uplink.empty(); });
    if (!any) return {};
    auto uplinks = Uplinks::open(config);
    if (!uplinks.ok()) return uplinks.error();
    uplinks_ = std::move(*uplinks);
    return {};
}

void Daemon::assemble(const Options& options) {
    attachments_ = std::make_unique<Attachments>(poller_, memory_);
    card_ = std::make_unique<Card>(options.config, *attachments_, memory_);
    congestion_ = std::make_unique<CongestionProcesses>(*card_);
    captures_ = std::make_unique<Captures>(
        poller_, memory_, [this](TapPoint point, bool on) { card_->set_tap(point, on); });
    attachments_->set_captures(captures_.get());
    attachments_->set_network(network_.get());
    attachments_->set_uplinks(uplinks_.get());
    loop_ = std::make_unique<Loop>(
        Loop::Parts{*card_, *attachments_, *captures_, poller_, page_->page(), bell_.value(),
                    options.may_spin, network_.get(), uplinks_.get()},
        counters_);
    admin_ = std::make_unique<Admin>(Admin::Parts{
        *card_, *captures_, *attachments_, *congestion_, memory_, counters_, [this] { stop(); },
        options.topology, socket_->path(), network_.get(), uplinks_.get()});
    server_ = std::make_unique<Server>(Server::Parts{*card_, *attachments_, *captures_, *admin_,
                                                     *congestion_, poller_, page_->fd(),
                                                     bell_.value(), network_.get()});
    admin_->set_clients(server_.get());
}

Status Daemon::begin() {
    if (network_) {
        if (Status started = network_->start(*card_, poller_, memory_); !started) return started;
        for (const UniqueFd& listener : network_->listeners()) {
            if (Status serving = server_->serve(listener.value()); !serving) return serving;
        }
    }
    if (uplinks_) {
        const auto retry = [this] { server_->retry_waiting(); };
        if (Status started = uplinks_->start(*card_, poller_, retry); !started) return started;
    }
    return server_->serve(socket_->listener());
}

Status Daemon::handle_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    if (::sigprocmask(SIG_BLOCK, &ends, nullptr) != 0) return system_error("cannot block signals");
    signals_.reset(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return system_error("cannot receive signals");
    const Poller::Token watch = poller_.add(signals_.value(), EPOLLIN, [this](std::uint32_t) {
        signalfd_siginfo info{};
        if (::read(signals_.value(), &info, sizeof info) != sizeof info) return;
        spdlog::info("signal {} ends the card", info.ssi_signo);
        stop();
    });
    if (watch == Poller::kNone) return system_error("cannot watch for signals");
    return {};
}

}  // namespace rdmalab::card::host
