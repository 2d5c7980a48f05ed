/*
 * A sniffer for UDP, made of flow rules (ibv_create_flow(3)):
 *
 *   udp_sniffer DEVICE [--port N] [--take N] [--count N] [--seconds N]
 *
 * prints a line for each UDP datagram that reaches the device and counts them in the card.
 *
 * Three rules hang on one raw packet QP, and show what priorities are for:
 *
 *   priority 0   datagrams to the port of --take are kept from everybody else (the rule traps)
 *   priority 1   datagrams to the port of --port are copied and counted by themselves (DONT_TRAP)
 *   priority 2   all other datagrams are copied and counted (DONT_TRAP)
 *
 * so the network interface of the device still gets what --take does not name. A datagram meets the
 * rules in this order and gets a tag at each, by which the program knows the rule; copies for the
 * rules behind the first are not wanted, so the program skips a frame that it has just shown.
 *
 * Build: cc -o udp_sniffer udp_sniffer.c -libverbs
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 256, SLOT_BYTES = 2048, TAG_TAKEN = 1, TAG_PORT = 2, TAG_OTHER = 3 };

struct sniffer {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_cq_ex* cq;
    struct ibv_mr* mr;
    struct ibv_qp* qp;
    unsigned char* slots;
};

struct counted_rule {
    const char* name;
    struct ibv_flow* flow;
    struct ibv_counters* counters;
};

static void die(const char* what, int error) {
    fprintf(stderr, "udp_sniffer: %s: %s\n", what, strerror(error));
    exit(1);
}

static void* need(void* object, const char* what) {
    if (object == NULL) die(what, errno);
    return object;
}

static void need_zero(int status, const char* what) {
    if (status != 0) die(what, status);
}

static struct ibv_context* open_device(const char* name) {
    struct ibv_device** list = need(ibv_get_device_list(NULL), "the list of devices");
    struct ibv_context* context = NULL;
    for (struct ibv_device** device = list; *device != NULL; device++)
        if (strcmp(ibv_get_device_name(*device), name) == 0) context = ibv_open_device(*device);
    ibv_free_device_list(list);
    return need(context, name);
}

static void post(struct sniffer* s, uint64_t slot) {
    struct ibv_sge sge = {(uintptr_t)(s->slots + slot * SLOT_BYTES), SLOT_BYTES, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    need_zero(ibv_post_recv(s->qp, &wr, &bad), "ibv_post_recv");
}

static void set_up(struct sniffer* s, const char* device) {
    s->context = open_device(device);
    s->pd = need(ibv_alloc_pd(s->context), "ibv_alloc_pd");
    s->slots = need(calloc(SLOTS, SLOT_BYTES), "memory");
    s->mr =
        need(ibv_reg_mr(s->pd, s->slots, SLOTS * SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    struct ibv_cq_init_attr_ex cq = {.cqe = SLOTS,
                                     .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG};
    s->cq = need(ibv_create_cq_ex(s->context, &cq), "ibv_create_cq_ex");
    struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(s->cq),
                                    .recv_cq = ibv_cq_ex_to_cq(s->cq),
                                    .cap = {.max_recv_wr = SLOTS, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RAW_PACKET};
    s->qp = need(ibv_create_qp(s->pd, &init), "a raw packet QP");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    need_zero(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "INIT");
    attr.qp_state = IBV_QPS_RTR;
    need_zero(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), "RTR");
    for (uint64_t slot = 0; slot < SLOTS; slot++) post(s, slot);
}

/* `port` -1: any. */
static struct counted_rule add_rule(struct sniffer* s, const char* name, int port,
                                    uint16_t priority, uint32_t flags, uint32_t tag) {
    struct counted_rule made = {.name = name};
    struct ibv_counters_init_attr init = {0};
    made.counters = need(ibv_create_counters(s->context, &init), "ibv_create_counters");
    struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0};
    struct ibv_counter_attach_attr bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
    need_zero(ibv_attach_counters_point_flow(made.counters, &packets, NULL), "packets");
    need_zero(ibv_attach_counters_point_flow(made.counters, &bytes, NULL), "bytes");
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_tcp_udp udp;
        struct ibv_flow_spec_action_tag tag;
        struct ibv_flow_spec_counter_action count;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL,
                 .size = sizeof rule,
                 .priority = priority,
                 .num_of_specs = 3,
                 .port = 1,
                 .flags = flags},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof rule.udp},
        .tag = {.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof rule.tag, .tag_id = tag},
        .count = {.type = IBV_FLOW_SPEC_ACTION_COUNT,
                  .size = sizeof rule.count,
                  .counters = made.counters},
    };
    if (port >= 0) {
        rule.udp.val.dst_port = htons((uint16_t)port);
        rule.udp.mask.dst_port = 0xffff;
    }
    made.flow = need(ibv_create_flow(s->qp, &rule.attr), "ibv_create_flow");
    return made;
}

/* A frame that met the rule with `tag`; the headers are there, or it would not have met it. */
static void show(const unsigned char* frame, uint32_t length, uint32_t tag) {
    static const char* const names[] = {"", "taken", "port", "other"};
    size_t at = 12;
    while (at + 4 < length && frame[at] == 0x81 && frame[at + 1] == 0) at += 4;
    char from[INET6_ADDRSTRLEN] = "?", to[INET6_ADDRSTRLEN] = "?";
    const unsigned char* ip = frame + at + 2;
    const unsigned char* udp = ip + 40;
    if (ip[0] >> 4 == 4) {
        inet_ntop(AF_INET, ip + 12, from, sizeof from);
        inet_ntop(AF_INET, ip + 16, to, sizeof to);
        udp = ip + 4 * (ip[0] & 15);
    } else {
        inet_ntop(AF_INET6, ip + 8, from, sizeof from);
        inet_ntop(AF_INET6, ip + 24, to, sizeof to);
    }
    printf("%-5s %s:%u > %s:%u %u bytes\n", names[tag & 3], from, udp[0] << 8 | udp[1], to,
           udp[2] << 8 | udp[3], length);
    fflush(stdout);
}

/* Shows `count` datagrams, or as many as come in `seconds`. */
static void sniff(struct sniffer* s, unsigned long count, unsigned long seconds) {
    const time_t end = time(NULL) + (time_t)seconds;
    uint32_t last_tag = UINT32_MAX;
    while (count > 0 && time(NULL) < end) {
        struct ibv_poll_cq_attr poll = {0};
        if (ibv_start_poll(s->cq, &poll) != 0) continue;
        const uint64_t slot = s->cq->wr_id;
        const uint32_t tag = ibv_wc_read_flow_tag(s->cq);
        if (s->cq->status != IBV_WC_SUCCESS) die(ibv_wc_status_str(s->cq->status), EIO);
        /* A datagram for --port meets the rule for all behind it as well: its second copy. */
        if (!(last_tag == TAG_PORT && tag == TAG_OTHER)) {
            show(s->slots + slot * SLOT_BYTES, ibv_wc_read_byte_len(s->cq), tag);
            count--;
        }
        last_tag = tag;
        ibv_end_poll(s->cq);
        post(s, slot);
    }
}

static void report(struct counted_rule* rule) {
    uint64_t values[2];
    need_zero(ibv_read_counters(rule->counters, values, 2, 0), "ibv_read_counters");
    printf("%s: %llu packets, %llu bytes\n", rule->name, (unsigned long long)values[0],
           (unsigned long long)values[1]);
    need_zero(ibv_destroy_flow(rule->flow), "ibv_destroy_flow");
    need_zero(ibv_destroy_counters(rule->counters), "ibv_destroy_counters");
}

int main(int argc, char** argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"take", required_argument, NULL, 't'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    int port = -1, take = -1;
    unsigned long count = 10, seconds = 3600;
    for (int option; (option = getopt_long(argc, argv, "p:t:c:s:", options, NULL)) != -1;) {
        if (option == '?') return 2;
        const unsigned long value = strtoul(optarg, NULL, 10);
        if (option == 'p') port = (int)(value & 0xffff);
        if (option == 't') take = (int)(value & 0xffff);
        if (option == 'c') count = value;
        if (option == 's') seconds = value;
    }
    if (optind + 1 != argc) {
        fprintf(stderr,
                "usage: udp_sniffer DEVICE [--port N] [--take N] [--count N] [--seconds N]\n");
        return 2;
    }
    struct sniffer s = {0};
    set_up(&s, argv[optind]);
    struct counted_rule rules[3];
    int rule_count = 0;
    if (take >= 0) rules[rule_count++] = add_rule(&s, "taken", take, 0, 0, TAG_TAKEN);
    if (port >= 0)
        rules[rule_count++] =
            add_rule(&s, "port", port, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP, TAG_PORT);
    rules[rule_count++] = add_rule(&s, "all", -1, 2, IBV_FLOW_ATTR_FLAGS_DONT_TRAP, TAG_OTHER);
    puts("ready");
    fflush(stdout);
    sniff(&s, count, seconds);
    for (int i = 0; i < rule_count; i++) report(&rules[i]);
    need_zero(ibv_destroy_qp(s.qp), "ibv_destroy_qp");
    need_zero(ibv_destroy_cq(ibv_cq_ex_to_cq(s.cq)), "ibv_destroy_cq");
    need_zero(ibv_dereg_mr(s.mr), "ibv_dereg_mr");
    need_zero(ibv_dealloc_pd(s.pd), "ibv_dealloc_pd");
    need_zero(ibv_close_device(s.context), "ibv_close_device");
    free(s.slots);
    return 0;
}
