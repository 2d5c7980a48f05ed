#include "transport/staging.h"

#include <cassert>

namespace rdmalab::transport {
namespace {

WcOpcode completion_opcode(WrOpcode opcode) {
    switch (opcode) {
        case WrOpcode::kSend:
        case WrOpcode::kSendImm:
        case WrOpcode::kSendInvalidate:
            return WcOpcode::kSend;
        case WrOpcode::kWrite:
        case WrOpcode::kWriteImm:
            return WcOpcode::kWrite;
        case WrOpcode::kRead:
            return WcOpcode::kRead;
        case WrOpcode::kCompareSwap:
            return WcOpcode::kCompareSwap;
        case WrOpcode::kFetchAdd:
            return WcOpcode::kFetchAdd;
        case WrOpcode::kLocalInvalidate:
            return WcOpcode::kLocalInvalidate;
        case WrOpcode::kBindMw:
            return WcOpcode::kBindMw;
        case WrOpcode::kAtomicWrite:
            return WcOpcode::kAtomicWrite;
    }
    return WcOpcode::kSend;
}

}  // namespace

std::byte* RoundArena::allocate(std::size_t bytes) {
    assert(bytes <= kBlockSize);
    bytes = round_up(bytes, 8);
    if (block_ < blocks_.size() && used_ + bytes > kBlockSize) {
        ++block_;
        used_ = 0;
    }
    if (block_ == blocks_.size()) blocks_.push_back(std::make_unique<std::byte[]>(kBlockSize));
    std::byte* const at = blocks_[block_].get() + used_;
    used_ += bytes;
    return at;
}

void Staging::add_send(const Qp& qp, const SendWork& work, WcStatus status) {
    StagedCompletion& staged = completions_.emplace_back();
    staged.cq = qp.init.send_cq;
    staged.first_psn = work.first_psn;
    staged.psn_count = work.psn_count;
    staged.is_silent = status == WcStatus::kSuccess && !work.wqe.signaled && !qp.init.signal_all;
    Completion& completion = staged.completion;
    completion.wr_id = work.wqe.wr_id;
    completion.ring_index = work.wqe.ring_index;
    completion.qpn = qp.qpn;
    completion.status = status;
    completion.opcode = completion_opcode(work.wqe.opcode);
    completion.byte_length = work.wqe.length;
}

void Staging::add_recv(const Qp& qp, const RecvWqe& wqe, Completion fields, Psn first_psn,
                       std::uint32_t psn_count) {
    fields.wr_id = wqe.wr_id;
    fields.ring_index = wqe.ring_index;
    fields.qpn = qp.qpn;
    fields.is_recv = true;
    fields.from_srq = qp.recv_target.srq.has_value();
    if (fields.from_srq) fields.srq = *qp.recv_target.srq;
    completions_.push_back({qp.recv_target.cq, fields, first_psn, psn_count, false});
}

void Staging::add_duty(Qp& qp) {
    if (qp.responder.is_staged) return;
    qp.responder.is_staged = true;
    duties_.push_back(qp.qpn);
}

void Staging::clear() {
    completions_.clear();
    events_.clear();
    duties_.clear();
    arena_.reset();
}

}  // namespace rdmalab::transport
