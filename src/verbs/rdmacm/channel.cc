#include "verbs/rdmacm/channel.h"

#include <unistd.h>

#include <new>

#include "verbs/rdmacm/id.h"

namespace rdmalab::rdmacm {

namespace {

std::mutex channels_mutex;
Channel* first_channel = nullptr;

void remember(Channel& channel) {
    std::lock_guard guard(channels_mutex);
    channel.next = first_channel;
    if (first_channel != nullptr) first_channel->previous = &channel;
    first_channel = &channel;
}

void forget(Channel& channel) {
    std::lock_guard guard(channels_mutex);
    if (channel.next != nullptr) channel.next->previous = channel.previous;
    if (channel.previous != nullptr) channel.previous->next = channel.next;
    if (first_channel == &channel) first_channel = channel.next;
}

int make_pipe(Channel& channel) {
    abi::HandleReply reply{};
    verbs::ReceivedFds fds;
    int status = channel.session->call(abi::CmOp::kCreateChannel, ByteView(),
                                       std::as_writable_bytes(std::span(&reply, 1)), &fds);
    if (status != 0) return status;
    if (fds.count != 1) return EPROTO;
    channel.fd = fds.take(0);
    channel.handle = reply.handle;
    return 0;
}

}  // namespace

void lock_channels() { channels_mutex.lock(); }
void unlock_channels() { channels_mutex.unlock(); }

void abandon_channels() {
    for (Channel* c = first_channel; c != nullptr; c = c->next) {
        if (c->fd >= 0) close(c->fd);
        c->fd = -1;
    }
}

Channel* create_channel(Session* session) {
    int status = 0;
    if (session == nullptr) {
        session = Session::current(status);
        if (session == nullptr) return fail_null(status);
    } else {
        session->retain();
    }
    auto* channel = new (std::nothrow) Channel();
    if (channel == nullptr) {
        session->release();
        return fail_null(ENOMEM);
    }
    channel->session = session;
    channel->life = new (std::nothrow) ChannelLife();
    status = channel->life != nullptr ? make_pipe(*channel) : ENOMEM;
    if (status != 0) {
        delete channel->life;
        delete channel;
        session->release();
        return fail_null(status);
    }
    remember(*channel);
    return channel;
}

void destroy_channel(Channel& channel) {
    forget(channel);
    channel.life->is_over = true;
    // Fails only when the card is dead, or when the program keeps ids on the channel, which it must
    // not: the card ends those with the session.
    channel.session->call(abi::CmOp::kDestroyChannel, abi::HandleRequest{channel.handle});
    if (channel.fd >= 0) close(channel.fd);
    channel.session->release();
    channel.life->release();
    delete &channel;
}

void add_to_channel(Id& id, Channel& channel) {
    std::lock_guard guard(channel.mutex);
    id.channel = &channel;
    id.next_in_channel = channel.first_id;
    channel.first_id = &id;
}

void remove_from_channel(Id& id) {
    Channel& channel = channel_of(id.channel);
    std::lock_guard guard(channel.mutex);
    Id** link = &channel.first_id;
    while (*link != nullptr && *link != &id) link = &(*link)->next_in_channel;
    if (*link != nullptr) *link = id.next_in_channel;
    id.next_in_channel = nullptr;
}

}  // namespace rdmalab::rdmacm

using namespace rdmalab::rdmacm;

extern "C" rdma_event_channel* rdma_create_event_channel() { return create_channel(nullptr); }

extern "C" void rdma_destroy_event_channel(rdma_event_channel* channel) {
    destroy_channel(channel_of(channel));
}
