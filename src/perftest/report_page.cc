#include "perftest/report_page.h"

#include <errno.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "perftest/failure.h"
#include "perftest/report_json.h"

// The files of web/ as bytes of the program: the name of each, and one behind its end.
#define RDMALAB_EMBED(name, file)                \
    __asm__(                                     \
        ".pushsection .rodata\n"                 \
        ".global rdmalab_web_" #name             \
        "\n"                                     \
        "rdmalab_web_" #name                     \
        ":\n"                                    \
        ".incbin \"" RDMALAB_WEB_FOLDER "/" file \
        "\"\n"                                   \
        ".global rdmalab_web_" #name             \
        "_end\n"                                 \
        "rdmalab_web_" #name                     \
        "_end:\n"                                \
        ".popsection\n");                        \
    extern "C" const char rdmalab_web_##name[], rdmalab_web_##name##_end[]
RDMALAB_EMBED(page, "report.html");
RDMALAB_EMBED(style, "report.css");
RDMALAB_EMBED(script, "report.js");
RDMALAB_EMBED(charts, "charts.min.js");
#undef RDMALAB_EMBED

namespace rdmalab::perftest {

namespace {

std::string_view between(const char* begin, const char* end) {
    return {begin, static_cast<std::size_t>(end - begin)};
}

// JSON within a script element: no text of it may end the element or begin a comment.
std::string embedded(const Json& report) {
    std::string text = to_text(report), out;
    out.reserve(text.size());
    for (char c : text) {
        if (c == '<') {
            out += "\\u003c";
        } else {
            out += c;
        }
    }
    return out;
}

constexpr char kUsage[] =
    "Usage: {0} report RESULTS.json [-o REPORT.html]\n\n"
    "Makes one page of a JSON report (-j): connection matrix, distributions, bandwidth over time,\n"
    "queue pairs, all tables. The page needs no other file and no network.\n\n"
    "  RESULTS.json             the report; - reads it from the standard input\n"
    "  -o, --output REPORT.html where the page goes (default: RESULTS.html, - writes it to the\n"
    "                           standard output)\n"
    "  -h, --help               this text\n";

struct ReportOptions {
    std::string input, output;
    bool help = false;
};

Result<ReportOptions> read_options(const std::vector<std::string>& words) {
    ReportOptions options;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "-h" || word == "--help") {
            options.help = true;
            return options;
        }
        if (word == "-o" || word == "--output") {
            if (++i == words.size()) return Error{EINVAL, word + ": expected a file"};
            if (!options.output.empty()) return Error{EINVAL, word + ": expected once"};
            options.output = words[i];
        } else if (word.size() > 1 && word.front() == '-') {
            return Error{EINVAL, word + ": unknown flag"};
        } else if (!options.input.empty()) {
            return Error{EINVAL,
                         fmt::format("expected one report, found {} and {}", options.input, word)};
        } else {
            options.input = word;
        }
    }
    if (options.input.empty()) return Error{EINVAL, "expected the file of a report"};
    if (options.output.empty()) {
        std::string stem = options.input;
        if (stem.ends_with(".json")) stem.resize(stem.size() - 5);
        options.output = stem == "-" ? "-" : stem + ".html";
    }
    return options;
}

Result<std::string> read_whole(const std::string& path) {
    FILE* file = path == "-" ? stdin : fopen(path.c_str(), "re");
    std::string text;
    bool good = file != nullptr;
    for (char bytes[65536]; good;) {
        const std::size_t count = fread(bytes, 1, sizeof bytes, file);
        text.append(bytes, count);
        if (count == sizeof bytes) continue;
        good = ferror(file) == 0;
        break;
    }
    const int error = errno;
    if (file != nullptr && file != stdin) fclose(file);
    if (!good) return Error{error, fmt::format("cannot read {}: {}", path, strerror(error))};
    return text;
}

Result<Json> read_report(const std::string& path) {
    Result<std::string> text = read_whole(path);
    if (!text.ok()) return text.error();
    const std::string name = path == "-" ? "the standard input" : path;
    Json report;
    try {
        report = Json::parse(*text);
    } catch (const Json::exception& error) {
        return Error{EINVAL, fmt::format("{}: expected JSON: {}", name, error.what())};
    }
    const auto refused = [&](const std::string& what) {
        return Error{EINVAL,
                     fmt::format("{}: {}; expected a report that was written with -j", name, what)};
    };
    if (!report.is_object()) return refused(fmt::format("found {}", report.type_name()));
    const Json version = report.value("/versionInfo/jsonOutputSchema"_json_pointer, Json());
    if (!version.is_string()) return refused("versionInfo.jsonOutputSchema is missing");
    if (!version.get<std::string>().starts_with("1.")) {
        return Error{EINVAL, fmt::format("{}: versionInfo.jsonOutputSchema: expected 1.x, found {}",
                                         name, version.get<std::string>())};
    }
    if (!report.contains("connections") || !report.at("connections").is_array()) {
        return refused("connections, a list, is missing");
    }
    return report;
}

Status write_page(const std::string& path, const std::string& page) {
    if (path != "-") return write_whole(path, page);
    if (fwrite(page.data(), 1, page.size(), stdout) == page.size() && fflush(stdout) == 0)
        return {};
    return Error{errno, fmt::format("cannot write to the standard output: {}", strerror(errno))};
}

}  // namespace

std::string report_page(const Json& report) {
    struct Part {
        std::string_view mark;
        std::string text;
    };
    const Part parts[] = {
        {"@generator@", "rdma_perftest " RDMALAB_VERSION},
        {"@style@", std::string(between(rdmalab_web_style, rdmalab_web_style_end))},
        {"@results@", embedded(report)},
        {"@charts@", std::string(between(rdmalab_web_charts, rdmalab_web_charts_end))},
        {"@script@", std::string(between(rdmalab_web_script, rdmalab_web_script_end))},
    };
    // The marks stand in the page in this order; what is put in is not searched for them.
    std::string_view left = between(rdmalab_web_page, rdmalab_web_page_end);
    std::string page;
    for (const Part& part : parts) {
        const std::size_t at = left.find(part.mark);
        page.append(left.substr(0, at)).append(part.text);
        left.remove_prefix(at + part.mark.size());
    }
    return page.append(left);
}

int run_report_command(const std::string& path, const std::vector<std::string>& words) {
    const std::string program = path.substr(path.rfind('/') + 1);
    const auto fail = [&](const Error& error) {
        fmt::print(stderr, "{} report: {}\n", program, error.text);
        return kExitError;
    };
    Result<ReportOptions> options = read_options(words);
    if (!options.ok()) return fail(options.error());
    if (options->help) {
        fmt::print(kUsage, program);
        return kExitOk;
    }
    Result<Json> report = read_report(options->input);
    if (!report.ok()) return fail(report.error());
    if (Status written = write_page(options->output, report_page(*report)); !written.ok()) {
        return fail(written.error());
    }
    if (options->output != "-") fmt::print("wrote {}\n", options->output);
    return kExitOk;
}

}  // namespace rdmalab::perftest
