#include "perftest/parameters.h"

namespace rdmalab::perftest {

namespace {

constexpr Kind kFlag = Kind::kFlag, kCount = Kind::kCount, kSize = Kind::kSize,
               kDecimal = Kind::kDecimal, kText = Kind::kText;
constexpr Scope kTest = Scope::kTest, kSide = Scope::kSide, kClient = Scope::kClient,
                kScenario = Scope::kScenario;

constexpr Parameter kParameters[] = {
    {"device", 'd', "deviceName", kText, kSide, Topic::kConnection, "NAME",
     "RDMA device; the first one with an active port when left out"},
    {"ib_port", 0, "ibPort", kCount, kSide, Topic::kConnection, "PORT",
     "port of the device; the first active one when left out"},
    {"server", 'n', "", kText, kClient, Topic::kConnection, "HOST",
     "be the client, of the server on HOST; without it, be the server"},
    {"connection_type", 'c', "connectionType", kText, kTest, Topic::kConnection, "RC|UC|UD",
     "transport of the queue pairs (default RC)"},
    {"gid_index", 'g', "gidIndex", kCount, kSide, Topic::kConnection, "INDEX",
     "GID to use; chosen automatically: RoCE v2, routable, of the wanted family"},
    {"gid_family", 0, "gidFamily", kText, kTest, Topic::kConnection, "ipv4|ipv6",
     "family wanted of an automatic GID (default ipv4, else ipv6)"},
    {"mtu", 0, "mtu", kCount, kTest, Topic::kConnection, "256|512|1024|2048|4096",
     "path MTU (default: what both ports have)"},
    {"service_level", 'S', "serviceLevel", kCount, kTest, Topic::kConnection, "0-15",
     "InfiniBand service level or Ethernet priority (default 0)"},
    {"traffic_class", 0, "trafficClass", kCount, kTest, Topic::kConnection, "0-255",
     "traffic class of the GRH: DSCP times 4 plus ECN (default 0)"},
    {"qp_timeout", 0, "qpTimeOut", kCount, kTest, Topic::kConnection, "0-31",
     "local ACK timeout, 4.096 us times 2 to this power; 0 is for ever (default 14)"},
    {"retry_count", 0, "retryCount", kCount, kTest, Topic::kConnection, "0-7",
     "retries before a queue pair gives up (default 7)"},
    {"start_psn", 0, "startPsn", kCount, kTest, Topic::kConnection, "PSN",
     "first packet sequence number of every queue pair, 24 bits (default random)"},
    {"use_ece", 0, "useEce", kFlag, kTest, Topic::kConnection, "",
     "negotiate enhanced connection establishment; RC and ibv only"},
    {"cc_group_hints", 0, "ccGroupHints", kText, kTest, Topic::kConnection,
     "FILE,SIZE,VENDOR,FORMAT", "hints for congestion control; needs the dv driver"},
    {"rdma_driver", 'r', "rdmaDriver", kText, kTest, Topic::kConnection, "ibv|dv",
     "libibverbs, or DOCA verbs (default ibv)"},
    {"engine", 0, "engine", kText, kTest, Topic::kConnection, "cpu|gpunetio",
     "who posts and polls (default cpu)"},
    {"port", 0, "port", kCount, kClient, Topic::kConnection, "PORT",
     "TCP port of the server's control channel (default 18555)"},

    {"verb", 'v', "verb", kText, kTest, Topic::kTraffic,
     "write|read|send|write_imm|send_imm|atomic_fa|atomic_cs", "operation (default write)"},
    {"msg_size", 's', "msgSize", kSize, kTest, Topic::kTraffic, "BYTES",
     "bytes of a message; k, M, G are powers of 1024 (default 65536; atomics 8; UD 1024)"},
    {"operations", 0, "operations", kText, kTest, Topic::kTraffic, "VERB:SIZE,...",
     "several work requests per iteration, each with its own verb, size and memory region"},
    {"bidirectional", 'b', "trafficDirection", kFlag, kTest, Topic::kTraffic, "",
     "both sides send at once, over the same queue pairs"},
    {"validate", 0, "dataValidation", kFlag, kTest, Topic::kTraffic, "",
     "check every byte that arrives; send, bandwidth, -w 0"},

    {"metric", 'm', "metric", kText, kTest, Topic::kMeasuring, "bw|lat",
     "bandwidth or latency (default bw)"},
    {"duration", 'D', "duration", kDecimal, kTest, Topic::kMeasuring, "SECONDS",
     "measured time; warm-up and end margin come on top (default 10)"},
    {"iterations", 'i', "iterations", kCount, kTest, Topic::kMeasuring, "COUNT",
     "measure this many iterations per queue pair instead of a time"},
    {"run_infinitely", 0, "runInfinitely", kFlag, kTest, Topic::kMeasuring, "",
     "measure until Ctrl-C on either side; both sides then report"},
    {"lat_mode", 0, "latencyMode", kText, kTest, Topic::kMeasuring, "full_round_trip|one_way",
     "ping-pong, half the round trip; or local completion (default full_round_trip)"},
    {"warmup_time", 'w', "warmupTime", kDecimal, kTest, Topic::kMeasuring, "SECONDS",
     "traffic before the measured window; 0 is none (default 2)"},
    {"warmup_iterations", 0, "warmupIterations", kCount, kTest, Topic::kMeasuring, "COUNT",
     "warm up by iterations per queue pair instead; bandwidth only"},
    {"end_margin", 0, "endMargin", kDecimal, kTest, Topic::kMeasuring, "SECONDS",
     "traffic after the measured window; bandwidth only (default 0 for one process, else 2)"},
    {"bw_threshold", 0, "bwThreshold", kDecimal, kTest, Topic::kMeasuring, "GBPS",
     "exit 2 when the bandwidth is below; 0 is off"},
    {"lat_threshold", 0, "latThreshold", kDecimal, kTest, Topic::kMeasuring, "USEC",
     "exit 2 when the median latency is above; 0 is off"},

    {"qps", 'q', "qps", kCount, kTest, Topic::kQueues, "COUNT",
     "queue pairs of each process (default 1)"},
    {"tx_depth", 0, "txDepth", kCount, kTest, Topic::kQueues, "COUNT",
     "work requests in flight per queue pair (default 128)"},
    {"rx_depth", 0, "rxDepth", kCount, kTest, Topic::kQueues, "COUNT",
     "receives posted per queue pair (default 512)"},
    {"post_list", 0, "postList", kCount, kTest, Topic::kQueues, "COUNT",
     "iterations posted by one call (default: 16 up to 8 KiB, else 1)"},
    {"cq_mod", 0, "cqModeration", kCount, kTest, Topic::kQueues, "COUNT",
     "iterations per completion (default: the post list)"},
    {"inline_size", 0, "inlineSize", kCount, kTest, Topic::kQueues, "BYTES",
     "payload up to this size goes into the work request (default: 220 for latency, else 0)"},
    {"rate_limit", 0, "rateLimit", kDecimal, kTest, Topic::kQueues, "GBPS",
     "limit of each queue pair, kept by the sender; 0 is off"},

    {"num_processes", 'N', "numProcesses", kCount, kTest, Topic::kPlacement, "COUNT",
     "processes on each side, started together (default 1)"},
    {"cores", 'C', "cores", kText, kSide, Topic::kPlacement, "LIST",
     "one process on each of these cores: 5, 5,7 or 5-9"},
    {"exclude_cores", 0, "excludeCores", kText, kSide, Topic::kPlacement, "LIST",
     "cores that the automatic choice leaves alone"},

    {"mem_type", 'M', "memoryType", kText, kSide, Topic::kMemory,
     "host|nullmr|device|cuda|cuda_auto_detect|cuda_data_direct|cuda_dmabuf|cuda_peermem",
     "memory of the buffers (default host); cuda is cuda_auto_detect"},
    {"cuda_device_id", 'G', "cudaDeviceId", kCount, kSide, Topic::kMemory, "GPU",
     "the GPU of a cuda memory type; the nearest when left out"},
    {"cuda", 0, "", kCount, kSide, Topic::kMemory, "GPU",
     "deprecated: the same as -M cuda_auto_detect -G GPU"},
    {"cuda_lib_path", 0, "cudaLibPath", kText, kSide, Topic::kMemory, "FOLDER",
     "where to look for the CUDA driver library"},
    {"ph", 0, "ph", kCount, kSide, Topic::kMemory, "0-3",
     "TPH processing hint: 0 bidirectional, 1 requester, 2 target, 3 target with priority"},
    {"tph_core_id", 0, "tphCoreId", kCount, kSide, Topic::kMemory, "CORE",
     "core that TPH steers to; needs --ph and --tph_mem"},
    {"tph_mem", 0, "tphMem", kText, kSide, Topic::kMemory, "pm|vm",
     "persistent or volatile memory for TPH; needs --ph and --tph_core_id"},

    {"json_output", 'j', "outputFile", kText, kClient, Topic::kOutput, "[FILE]",
     "write the report as JSON; without FILE ./perftest_results_<time>.json"},
    {"print_json_results", 0, "printJsonOutput", kFlag, kClient, Topic::kOutput, "",
     "the report as JSON on stdout, and nothing else there"},
    {"non_interactive", 0, "nonInteractive", kFlag, kClient, Topic::kOutput, "",
     "no spinner, no bar, no redrawing"},
    {"report_interval", 'R', "reportInterval", kDecimal, kTest, Topic::kOutput, "SECONDS",
     "live bandwidth every so often; 0 is off"},
    {"qp_histogram", 'H', "printQpHistogram", kFlag, kTest, Topic::kOutput, "",
     "show each queue pair's share"},

    {"launch_server", 0, "", kText, kClient, Topic::kServer, "enable|disable|ssh|exec:COMMAND",
     "how a server that does not run is started (default enable: SSH, or directly on this host)"},
    {"server_exe", 0, "", kText, kClient, Topic::kServer, "PATH",
     "the program on the server's host (default: this command's name; here, this program)"},
    {"server_username", 0, "", kText, kClient, Topic::kServer, "USER", "user for SSH"},
    {"server_device", 0, "", kText, kClient, Topic::kServer, "NAME",
     "the server's -d (default: as the client)"},
    {"server_mem_type", 0, "", kText, kClient, Topic::kServer, "TYPE",
     "the server's -M (default: as the client)"},
    {"server_cores", 0, "", kText, kClient, Topic::kServer, "LIST",
     "the server's -C (default: as the client)"},
    {"lease", 0, "", kFlag, kClient, Topic::kServer, "",
     "be a server that ends when its standard input does"},

    {"traffic_pattern", 0, "trafficPattern", kText, kScenario, Topic::kScenario,
     "one_to_one|one_to_many|many_to_one|all_to_all|bisection|ring|o2o|o2m|m2o|a2a|b|r",
     "run between all hosts of -n and all devices of -d, both with bracket ranges, in this "
     "pattern"},
    {"traffic_partition", 0, "trafficPartition", kText, kScenario, Topic::kScenario,
     "railed|local|remote",
     "keep the connections between equal devices of different hosts, of one host, or of different "
     "hosts"},
    {"dual_unidir", 0, "", kFlag, kScenario, Topic::kScenario, "",
     "two connections for each, one per direction, each with its own queue pairs"},
    {"iteration_sync", 0, "iterationSync", kFlag, kScenario, Topic::kScenario, "",
     "all_to_all in lock-step: nobody begins an iteration before all have ended the one before"},
    {"peer_shifting", 0, "peerShifting", kFlag, kScenario, Topic::kScenario, "",
     "all_to_all in rounds: in round p endpoint i sends to i+p only"},
    {"ptini_file", 0, "ptiniFile", kText, kScenario, Topic::kScenario, "FILE",
     "sizes of an all_to_all pair by pair, from a UCC pattern file"},
    {"ptini_datatype", 0, "ptiniDatatype", kText, kScenario, Topic::kScenario, "TYPE",
     "UCC's name of the type that the file counts (default float32)"},
    {"input_file", 'f', "", kText, kScenario, Topic::kScenario, "FILE",
     "run the tests of a JSON scenario: a file, or the JSON itself"},
    {"disable_connection_matrix", 0, "", kFlag, kScenario, Topic::kScenario, "",
     "do not print the table of all connections"},
    {"dry_run", 0, "", kFlag, kScenario, Topic::kScenario, "",
     "print who would talk to whom, and run nothing"},
    {"control", 0, "", kText, kClient, Topic::kScenario, "auto|local|mpi",
     "how hosts are reached: by MPI, or all of them played by this machine (default auto: local "
     "when every host is this one)"},
    {"mpirun", 0, "", kText, kClient, Topic::kScenario, "COMMAND",
     "Open MPI's launcher, with words of its own if need be (default mpirun)"},
    {"mpi_tcp_network_interfaces", 0, "mpiTcpNetworkInterfaces", kText, kClient, Topic::kScenario,
     "LIST",
     "networks (10.0.0.0/24) or interfaces that MPI's own traffic takes (default: the network of "
     "the hosts' addresses)"},
    {"ssh_user", 0, "sshUser", kText, kClient, Topic::kScenario, "USER",
     "user for SSH to the hosts"},
    {"remote_exe", 0, "", kText, kClient, Topic::kScenario, "PATH",
     "this program on the hosts (default: where it is here)"},
};

constexpr TopicInfo kTopics[] = {
    {Topic::kConnection, "connection", "Connection",
     "A server needs none of the test's flags: it takes them from the client. Flags that are given "
     "to both must agree."},
    {Topic::kTraffic, "traffic", "Traffic",
     "The client is the requester: it writes, sends, or reads. UC knows no read and no atomics, UD "
     "only send and send_imm of at most one MTU."},
    {Topic::kMeasuring, "measuring", "Measuring",
     "start, warm-up, [measured window], end margin, stop. Only completions inside the window "
     "count."},
    {Topic::kQueues, "queues", "Queues",
     "Depths, post lists and moderation count iterations; an iteration is one work request, or all "
     "of --operations."},
    {Topic::kPlacement, "placement", "Processes and cores",
     "Cores are chosen near the device, physical ones first, core 0 last. Host buffers lie on the "
     "device's NUMA node."},
    {Topic::kMemory, "memory", "Memory",
     "GPU memory needs the CUDA driver; TPH needs a kernel with it."},
    {Topic::kOutput, "output", "Output",
     "Exit codes: 0 all well, 1 an error, 2 a threshold missed, 3 corrupt data found."},
    {Topic::kServer, "launching", "Launching the server",
     "A running server is found by its answer on the control port and used. Otherwise one is "
     "started and ends with the client."},
    {Topic::kScenario, "scenario", "Many nodes",
     "Several tests at once, between any number of hosts, started and reported from here. All "
     "other flags of a test apply."},
};

}  // namespace

std::span<const Parameter> parameters() { return kParameters; }

const Parameter* find_parameter(std::string_view name) {
    for (const Parameter& parameter : kParameters) {
        if (name == parameter.name) return &parameter;
    }
    return nullptr;
}

const Parameter* find_json_field(std::string_view json) {
    for (const Parameter& parameter : kParameters) {
        if (!json.empty() && json == parameter.json) return &parameter;
    }
    return nullptr;
}

std::span<const TopicInfo> topics() { return kTopics; }

}  // namespace rdmalab::perftest
