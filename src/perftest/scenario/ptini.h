// UCC's ALLTOALLV pattern files (.ptini): how many elements each rank sends to each other one.
//
//   [collective]
//   type = ALLTOALLV          must be that, if present
//   team_size = 3             must be the number of endpoints, if present
//   counts = { 0, 8, 4        N times N element counts, row by row: sender by receiver
//              8, 0, 4, 1, 1, 0 }
//
// Everything else is ignored; ';' and '#' begin a comment. A file with a second pattern is refused:
// UCC would go through all of them, a test measures one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rdmalab::perftest {

// Bytes of an element of one of UCC's predefined datatypes.
std::optional<std::uint32_t> datatype_bytes(std::string_view name);
const std::vector<std::string>& datatype_names();

inline constexpr std::uint64_t kPairBytesMax = std::uint64_t{1} << 31;  // of one RDMA message

struct SizeMatrix {
    std::uint32_t ranks = 0;
    std::vector<std::uint64_t> bytes;  // row (sender) by row; the diagonal is 0
    std::uint64_t skipped = 0;         // pairs off the diagonal that send nothing

    std::uint64_t at(std::uint32_t from, std::uint32_t to) const {
        return bytes[std::size_t{from} * ranks + to];
    }
};

Result<SizeMatrix> parse_ptini(std::string_view text, std::uint32_t ranks,
                               std::uint32_t element_bytes);
// The same from a file, ~/ standing for the home folder. Errors name the file.
Result<SizeMatrix> read_ptini(const std::string& path, std::uint32_t ranks,
                              std::uint32_t element_bytes);

}  // namespace rdmalab::perftest
