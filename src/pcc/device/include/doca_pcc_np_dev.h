/* The programming interface of notification point programs: they build the answer to a probe. The
 * card answers probes itself; programs against this header compile, and the getters read the
 * packet that they are handed. */
#pragma once

#include <doca_pcc_dev_common.h>
#include <doca_pcc_dev_data_structures.h>
#include <doca_pcc_dev_services.h>
#include <doca_pcc_dev_utils.h>
#include <rdmalab_pcc_layout.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A probe that has arrived. */
struct doca_pcc_np_dev_request_packet {
    uint8_t* raw; /* from the Ethernet header on */
    uint32_t raw_size;
    uint32_t l4_offset, l4_size;
    uint32_t payload_offset, payload_size;
    uint32_t max_response_size;
    uint32_t probe_type_slot;
    uint8_t port_num, plane_num;
    uint8_t vlan_present;
    uint8_t reserved;
    uint16_t vlan_tci;
};

/* Its answer: `size` bytes of payload at `data`. `in` is the probe. */
struct doca_pcc_np_dev_response_packet {
    uint32_t size;
    uint8_t* data;
    struct doca_pcc_np_dev_request_packet* in;
    uint32_t prio;
};

/* Supplied by the user. */
doca_pcc_dev_error_t doca_pcc_dev_np_user_packet_handler(
    struct doca_pcc_np_dev_request_packet* in, struct doca_pcc_np_dev_response_packet* out);
__attribute__((weak)) doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(
    void* request, uint32_t request_size, uint32_t max_response_size, void* response,
    uint32_t* response_size);

FORCE_INLINE uint8_t* doca_pcc_np_dev_get_raw_packet(struct doca_pcc_np_dev_request_packet* in) {
    return in->raw;
}
FORCE_INLINE size_t doca_pcc_np_dev_get_raw_packet_size(struct doca_pcc_np_dev_request_packet* in) {
    return in->raw_size;
}
FORCE_INLINE uint8_t* doca_pcc_np_dev_get_l4_header(struct doca_pcc_np_dev_request_packet* in) {
    return in->raw + in->l4_offset;
}
FORCE_INLINE size_t doca_pcc_np_dev_get_l4_size(struct doca_pcc_np_dev_request_packet* in) {
    return in->l4_size;
}
FORCE_INLINE uint8_t* doca_pcc_np_dev_get_payload(struct doca_pcc_np_dev_request_packet* in) {
    return in->raw + in->payload_offset;
}
FORCE_INLINE size_t doca_pcc_np_dev_get_payload_size(struct doca_pcc_np_dev_request_packet* in) {
    return in->payload_size;
}
FORCE_INLINE uint8_t doca_pcc_np_dev_get_port_num(struct doca_pcc_np_dev_request_packet* in) {
    return in->port_num;
}
FORCE_INLINE uint8_t doca_pcc_np_dev_get_plane_num(struct doca_pcc_np_dev_request_packet* in) {
    return in->plane_num;
}
FORCE_INLINE void doca_pcc_np_dev_get_vlan_tci(struct doca_pcc_np_dev_request_packet* in,
                                               uint8_t* present, uint16_t* tci) {
    *present = in->vlan_present;
    *tci = in->vlan_tci;
}
FORCE_INLINE size_t
doca_pcc_np_dev_get_max_response_size(struct doca_pcc_np_dev_response_packet* out) {
    return out->in->max_response_size;
}
FORCE_INLINE uint32_t
doca_pcc_np_dev_get_packet_probe_type_slot(struct doca_pcc_np_dev_request_packet* in) {
    return in->probe_type_slot;
}
FORCE_INLINE void doca_pcc_np_dev_set_response_prio(struct doca_pcc_np_dev_response_packet* out,
                                                    uint32_t prio) {
    out->prio = prio;
}

#ifdef __cplusplus
}
#endif
