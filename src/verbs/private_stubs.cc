// The node IBVERBS_PRIVATE_34: what the providers of rdma-core 44 import from libibverbs. Programs
// drag libmlx5 and libefa in with immediate binding, so every symbol must be there, or nothing
// starts. The providers register their drivers when they are loaded (perhaps before our own
// constructors have run) and are never asked for a device, because no device of ours is theirs.
//
// Calls come with the arguments of the originals; ignoring them is what the C calling conventions
// of all Linux ABIs allow.
#include <errno.h>

#include "verbs/api.h"

#define RDMALAB_IGNORED(name) \
    RDMALAB_EXPORT void name() {}
#define RDMALAB_NO_OBJECT(name)   \
    RDMALAB_EXPORT void* name() { \
        errno = EOPNOTSUPP;       \
        return nullptr;           \
    }
#define RDMALAB_REFUSED(name) \
    RDMALAB_EXPORT int name() { return EOPNOTSUPP; }

// Read by providers that were told of a lost device.
RDMALAB_EXPORT bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

RDMALAB_EXPORT unsigned __ioctl_final_num_attrs(unsigned count) { return count; }
RDMALAB_EXPORT int ibv_read_ibdev_sysfs_file() { return -1; }

RDMALAB_IGNORED(__verbs_log)
RDMALAB_IGNORED(verbs_init_cq)
RDMALAB_IGNORED(verbs_register_driver_34)
RDMALAB_IGNORED(verbs_set_ops)
RDMALAB_IGNORED(verbs_uninit_context)

RDMALAB_NO_OBJECT(_verbs_init_and_alloc_context)
RDMALAB_NO_OBJECT(verbs_open_device)

RDMALAB_REFUSED(execute_ioctl)
RDMALAB_REFUSED(ibv_cmd_advise_mr)
RDMALAB_REFUSED(ibv_cmd_alloc_dm)
RDMALAB_REFUSED(ibv_cmd_alloc_mw)
RDMALAB_REFUSED(ibv_cmd_alloc_pd)
RDMALAB_REFUSED(ibv_cmd_attach_mcast)
RDMALAB_REFUSED(ibv_cmd_close_xrcd)
RDMALAB_REFUSED(ibv_cmd_create_ah)
RDMALAB_REFUSED(ibv_cmd_create_counters)
RDMALAB_REFUSED(ibv_cmd_create_cq)
RDMALAB_REFUSED(ibv_cmd_create_cq_ex)
RDMALAB_REFUSED(ibv_cmd_create_flow)
RDMALAB_REFUSED(ibv_cmd_create_flow_action_esp)
RDMALAB_REFUSED(ibv_cmd_create_qp)
RDMALAB_REFUSED(ibv_cmd_create_qp_ex)
RDMALAB_REFUSED(ibv_cmd_create_qp_ex2)
RDMALAB_REFUSED(ibv_cmd_create_rwq_ind_table)
RDMALAB_REFUSED(ibv_cmd_create_srq)
RDMALAB_REFUSED(ibv_cmd_create_srq_ex)
RDMALAB_REFUSED(ibv_cmd_create_wq)
RDMALAB_REFUSED(ibv_cmd_dealloc_mw)
RDMALAB_REFUSED(ibv_cmd_dealloc_pd)
RDMALAB_REFUSED(ibv_cmd_dereg_mr)
RDMALAB_REFUSED(ibv_cmd_destroy_ah)
RDMALAB_REFUSED(ibv_cmd_destroy_counters)
RDMALAB_REFUSED(ibv_cmd_destroy_cq)
RDMALAB_REFUSED(ibv_cmd_destroy_flow)
RDMALAB_REFUSED(ibv_cmd_destroy_flow_action)
RDMALAB_REFUSED(ibv_cmd_destroy_qp)
RDMALAB_REFUSED(ibv_cmd_destroy_rwq_ind_table)
RDMALAB_REFUSED(ibv_cmd_destroy_srq)
RDMALAB_REFUSED(ibv_cmd_destroy_wq)
RDMALAB_REFUSED(ibv_cmd_detach_mcast)
RDMALAB_REFUSED(ibv_cmd_free_dm)
RDMALAB_REFUSED(ibv_cmd_get_context)
RDMALAB_REFUSED(ibv_cmd_modify_cq)
RDMALAB_REFUSED(ibv_cmd_modify_flow_action_esp)
RDMALAB_REFUSED(ibv_cmd_modify_qp)
RDMALAB_REFUSED(ibv_cmd_modify_qp_ex)
RDMALAB_REFUSED(ibv_cmd_modify_srq)
RDMALAB_REFUSED(ibv_cmd_modify_wq)
RDMALAB_REFUSED(ibv_cmd_open_qp)
RDMALAB_REFUSED(ibv_cmd_open_xrcd)
RDMALAB_REFUSED(ibv_cmd_poll_cq)
RDMALAB_REFUSED(ibv_cmd_post_recv)
RDMALAB_REFUSED(ibv_cmd_post_send)
RDMALAB_REFUSED(ibv_cmd_post_srq_recv)
RDMALAB_REFUSED(ibv_cmd_query_context)
RDMALAB_REFUSED(ibv_cmd_query_device_any)
RDMALAB_REFUSED(ibv_cmd_query_mr)
RDMALAB_REFUSED(ibv_cmd_query_port)
RDMALAB_REFUSED(ibv_cmd_query_qp)
RDMALAB_REFUSED(ibv_cmd_query_srq)
RDMALAB_REFUSED(ibv_cmd_read_counters)
RDMALAB_REFUSED(ibv_cmd_reg_dm_mr)
RDMALAB_REFUSED(ibv_cmd_reg_dmabuf_mr)
RDMALAB_REFUSED(ibv_cmd_reg_mr)
RDMALAB_REFUSED(ibv_cmd_req_notify_cq)
RDMALAB_REFUSED(ibv_cmd_rereg_mr)
RDMALAB_REFUSED(ibv_cmd_resize_cq)
