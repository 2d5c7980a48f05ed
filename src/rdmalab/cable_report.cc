#include "rdmalab/cable_report.h"

#include "rdmalab/quantity.h"
#include "rdmalab/table.h"

namespace rdmalab::launcher {

std::string print_cables(const Json& cables) {
    if (cables.empty()) return "  no cable\n";
    Table table({"cable", "direction", "rate", "delay", "jitter", "loss", "reorder", "duplicate",
                 "corrupt", "ce", "icrc"});
    for (const Json& cable : cables) {
        for (const char* side : {"a_to_b", "b_to_a"}) {
            bool forward = side[0] == 'a';
            std::string from = cable.value(forward ? "a" : "b", "");
            std::string to = cable.value(forward ? "b" : "a", "");
            const Json faults = cable.value(side, Json::object());
            std::vector<std::string> row = {cable.value("name", ""), from + " -> " + to};
            row.push_back(print_rate(faults.value("rate_bps", std::uint64_t{0})));
            for (const char* key : {"delay_ns", "jitter_ns"}) {
                row.push_back(print_duration(faults.value(key, std::int64_t{0})));
            }
            for (const char* key : {"loss", "reorder", "duplicate", "corrupt", "ce"}) {
                row.push_back(print_probability(faults.value(key, 0.0)));
            }
            row.push_back(faults.value("verify_icrc", true) ? "verified" : "not verified");
            table.add_row(std::move(row));
        }
    }
    return table.print();
}

}  // namespace rdmalab::launcher
