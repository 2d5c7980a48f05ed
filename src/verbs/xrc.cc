// XRC: domains, the SRQs in them, and target QPs that several processes hold.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/operations.h"
#include "verbs/qp.h"
#include "verbs/srq.h"

namespace rdmalab::verbs {

namespace {

// The file that stands for a domain; fd -1: none, the domain is this context's own.
int describe_file(const ibv_xrcd_init_attr& attributes, abi::OpenXrcdRequest& out) {
    if (attributes.fd == -1) return (attributes.oflags & O_CREAT) ? 0 : EINVAL;
    struct stat file {};
    if (fstat(attributes.fd, &file) != 0) return errno;
    out.device = file.st_dev;
    out.inode = file.st_ino;
    return 0;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* public_context, ibv_xrcd_init_attr* attributes) {
    constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes->comp_mask != kNeeded || (attributes->oflags & ~(O_CREAT | O_EXCL))) {
        return fail(EINVAL);
    }
    abi::OpenXrcdRequest request{};
    if (int status = describe_file(*attributes, request)) return fail(status);
    if (attributes->oflags & O_CREAT) request.flags |= abi::kXrcdCreate;
    if (attributes->oflags & O_EXCL) request.flags |= abi::kXrcdExclusive;
    auto* xrcd = new (std::nothrow) Xrcd();
    if (xrcd == nullptr) return fail(ENOMEM);
    abi::HandleReply reply{};
    if (int status =
            context_of(public_context).connection.call(abi::Op::kOpenXrcd, request, reply)) {
        delete xrcd;
        return fail(status);
    }
    xrcd->context = public_context;
    xrcd->handle = reply.handle;
    return xrcd;
}

int close_xrcd(ibv_xrcd* public_xrcd) {
    Xrcd& xrcd = xrcd_of(public_xrcd);
    Context& context = context_of(xrcd.context);
    int status = context.connection.call(abi::Op::kCloseXrcd, abi::HandleRequest{xrcd.handle});
    if (destroy_status(context, status) != 0) return status;
    delete &xrcd;
    return 0;
}

ibv_srq* create_srq_extended(ibv_context*, ibv_srq_init_attr_ex* init) {
    constexpr std::uint32_t kNeeded = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    if (init->comp_mask & ~(kNeeded | IBV_SRQ_INIT_ATTR_TM)) return fail(EINVAL);
    bool has_type = init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE;
    if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD)) return fail(EINVAL);
    if (!has_type || init->srq_type == IBV_SRQT_BASIC) {
        return create_srq({.pd = init->pd, .context = init->srq_context}, init->attr);
    }
    if (init->srq_type != IBV_SRQT_XRC) return fail(EOPNOTSUPP);
    if (init->comp_mask != kNeeded || init->xrcd == nullptr || init->cq == nullptr) {
        return fail(EINVAL);
    }
    return create_srq({.pd = init->pd,
                       .context = init->srq_context,
                       .xrcd = &xrcd_of(init->xrcd),
                       .cq = init->cq},
                      init->attr);
}

int get_srq_number(ibv_srq* public_srq, std::uint32_t* number) {
    const Srq& srq = srq_of(public_srq);
    if (!srq.is_xrc) return EINVAL;
    *number = srq.handle;
    return 0;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
    constexpr std::uint32_t kNeeded =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    std::uint32_t mask = attributes->comp_mask;
    if ((mask & kNeeded) != kNeeded || (mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT))) {
        return fail(EINVAL);
    }
    if (attributes->qp_type != IBV_QPT_XRC_RECV || attributes->xrcd == nullptr) {
        return fail(EINVAL);
    }
    void* qp_context = (mask & IBV_QP_OPEN_ATTR_CONTEXT) ? attributes->qp_context : nullptr;
    Qp* qp = open_target_qp(context_of(context), xrcd_of(attributes->xrcd), attributes->qp_num,
                            qp_context);
    return qp == nullptr ? nullptr : &qp->base();
}

}  // namespace rdmalab::verbs
