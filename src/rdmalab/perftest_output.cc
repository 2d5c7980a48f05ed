#include "rdmalab/perftest_output.h"

#include <sstream>

namespace rdmalab::launcher {

std::optional<BandwidthResult> parse_bandwidth(const std::string& output) {
    std::istringstream lines(output);
    std::string line;
    bool after_head = false;
    while (std::getline(lines, line)) {
        if (line.find("#bytes") != std::string::npos &&
            line.find("BW average[Gb/sec]") != std::string::npos) {
            after_head = true;
            continue;
        }
        if (!after_head) continue;
        std::istringstream numbers(line);
        BandwidthResult result;
        double peak = 0;
        if (numbers >> result.bytes_per_message >> result.messages >> peak >>
            result.gigabits_per_second) {
            return result;
        }
    }
    return std::nullopt;
}

}  // namespace rdmalab::launcher
