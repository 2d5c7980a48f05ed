#include "rdmalab/flow_report.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "rdmalab/table.h"

namespace rdmalab::launcher {

namespace {

std::string text_of(const Json& object, const std::string& key) {
    const Json& value = member(object, key);
    return value.is_string() ? value.get<std::string>() : std::string();
}

std::string joined(const Json& list, const char* between) {
    std::string text;
    for (const Json& item : list) {
        if (item.is_string()) text += (text.empty() ? "" : between) + item.get<std::string>();
    }
    return text;
}

std::string print_forward(const Json& forward) {
    const std::string kind = text_of(forward, "kind");
    if (kind == "port") return "port " + text_of(forward, "name");
    if (kind == "pipe") return text_of(forward, "name");
    if (kind == "hash_pipe") {
        return fmt::format("{} by {}", text_of(forward, "name"), text_of(forward, "algorithm"));
    }
    if (kind != "rss") return kind;
    std::string queues;
    for (const Json& queue : member(forward, "queues")) {
        queues += (queues.empty() ? "" : ", ") + queue.dump();
    }
    return "queue " + queues;
}

std::string print_counter(const Json& counter) {
    return fmt::format("{} packets, {} bytes", print_count(number(counter, "packets")),
                       print_count(number(counter, "bytes")));
}

// What tells an entry from the others of its pipe.
std::string print_rule(const Json& entry) {
    std::string rule = joined(member(entry, "match"), " ");
    for (const char* key : {"index", "priority"}) {
        if (!entry.contains(key)) continue;
        const std::string place = fmt::format("{} {}", key, number(entry, key));
        rule = rule.empty() ? place : place + " " + rule;
    }
    return rule.empty() ? "everything" : rule;
}

std::string print_entry(const Json& entry) {
    std::string text = fmt::format("    entry {}: {}", number(entry, "id"), print_rule(entry));
    if (const std::string actions = joined(member(entry, "actions"), ", "); !actions.empty()) {
        text += fmt::format(" | {}", actions);
    }
    text += " -> " + print_forward(member(entry, "forward"));
    if (entry.contains("counter")) text += "  (" + print_counter(entry["counter"]) + ")";
    return text + "\n";
}

std::string print_pipe(const Json& pipe, std::size_t entries_max) {
    std::string kind = text_of(pipe, "type");
    if (const std::string how = joined(member(pipe, "algorithms"), "|"); !how.empty()) {
        kind += " by " + how;
    }
    if (pipe.value("root", false)) kind += ", root";
    std::string text = fmt::format("\n  {} ({}): {} of {} entries, {} hits, {} misses\n",
                                   text_of(pipe, "name"), kind, number(pipe, "live"),
                                   number(pipe, "entries_max"), print_count(number(pipe, "hits")),
                                   print_count(number(member(pipe, "misses"), "packets")));
    if (const std::string match = joined(member(pipe, "match"), " "); !match.empty()) {
        text += fmt::format("    match {}\n", match);
    }
    if (number(pipe, "retired") != 0) {
        text += fmt::format("    {} entries retired, not yet free\n", number(pipe, "retired"));
    }
    std::size_t shown = 0;
    const Json& entries = member(pipe, "entries");
    for (const Json& entry : entries) {
        if (shown++ == entries_max) break;
        text += print_entry(entry);
    }
    if (entries.size() > entries_max) {
        text +=
            fmt::format("    ... and {} more (--all shows them)\n", entries.size() - entries_max);
    }
    const std::string miss = print_forward(member(pipe, "miss"));
    return text + fmt::format("    miss -> {}\n", miss == "none" ? "drop" : miss);
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

// Ids in the graph are unique over all domains.
class Drawing {
public:
    explicit Drawing(const Json& domain) : domain_(domain), pf_(text_of(domain, "pf")) {}

    std::string draw() {
        out_ = fmt::format("  subgraph {} {{\n    label={};\n", quoted("cluster_" + pf_),
                           quoted(pf_ + ": " + owner()));
        for (const Json& port : member(domain_, "ports")) draw_port(port);
        for (const Json& pipe : member(domain_, "pipes")) draw_pipe(pipe);
        return out_ + "  }\n";
    }

private:
    std::string owner() const {
        const std::string name = text_of(domain_, "owner");
        return name.empty() ? "default forwarding" : name;
    }
    std::string node(const std::string& kind, const std::string& name) const {
        return quoted(pf_ + "/" + kind + "/" + name);
    }
    void draw_port(const Json& port) {
        const std::string name = text_of(port, "name");
        out_ += fmt::format("    {} [label={} shape=house];\n", node("port", name), quoted(name));
    }
    // The node that a forward leads to, made when it is none yet.
    std::string target(const Json& forward) {
        const std::string kind = text_of(forward, "kind");
        if (kind == "port") return node("port", text_of(forward, "name"));
        if (kind == "pipe" || kind == "hash_pipe") {
            return node("pipe", std::to_string(number(forward, "id")));
        }
        const std::string name = kind == "rss" ? print_forward(forward) : "drop";
        const std::string id = node("end", name);
        if (ends_.insert({id, true}).second) {
            out_ += fmt::format("    {} [label={} shape=plaintext];\n", id, quoted(name));
        }
        return id;
    }
    void draw_pipe(const Json& pipe) {
        const std::string id = node("pipe", std::to_string(number(pipe, "id")));
        const std::string match = joined(member(pipe, "match"), "\n");
        const std::string label =
            fmt::format("{}\n{}{}{}\n{} hits", text_of(pipe, "name"), text_of(pipe, "type"),
                        match.empty() ? "" : "\n", match, print_count(number(pipe, "hits")));
        const bool is_root = pipe.value("root", false);
        out_ += fmt::format("    {} [label={} shape=box{}];\n", id, quoted(label),
                            is_root ? " penwidth=2" : "");
        if (is_root) {
            for (const Json& port : member(domain_, "ports")) {
                out_ += fmt::format("    {} -> {};\n", node("port", text_of(port, "name")), id);
            }
        }
        draw_entries(pipe, id);
        const std::string miss = target(member(pipe, "miss"));
        out_ += fmt::format("    {} -> {} [style=dashed label=miss];\n", id, miss);
    }
    // One edge for all entries with the same target.
    void draw_entries(const Json& pipe, const std::string& id) {
        std::map<std::string, std::vector<const Json*>> by_target;
        for (const Json& entry : member(pipe, "entries")) {
            by_target[target(member(entry, "forward"))].push_back(&entry);
        }
        for (const auto& [to, entries] : by_target) {
            const std::string label = entries.size() == 1
                                          ? print_rule(*entries.front())
                                          : fmt::format("{} entries", entries.size());
            out_ += fmt::format("    {} -> {} [label={}];\n", id, to, quoted(label));
        }
    }

    const Json& domain_;
    std::string pf_;
    std::string out_;
    std::map<std::string, bool> ends_;
};

}  // namespace

std::string print_domain(const Json& domain, std::size_t entries_max) {
    const std::string pf = text_of(domain, "pf");
    const std::string owner = text_of(domain, "owner");
    if (owner.empty()) return fmt::format("{}: default forwarding, no owner\n", pf);
    std::string ports;
    for (const Json& port : member(domain, "ports")) {
        ports += (ports.empty() ? "" : ", ") + text_of(port, "name");
    }
    const Json& drops = member(domain, "drops");
    std::string text = fmt::format(
        "{}: owned by {}\n  ports {}\n  dropped {} by the pipes, {} without a root pipe, {} in "
        "loops; {} of {} counters in use\n",
        pf, owner, ports, print_count(number(drops, "dropped")),
        print_count(number(drops, "no_root")), print_count(number(drops, "loops")),
        number(domain, "counters_used"), number(domain, "counters_max"));
    for (const Json& pipe : member(domain, "pipes")) text += print_pipe(pipe, entries_max);
    return text;
}

std::string print_flow_counters(const Json& domain) {
    Table table({"pipe", "rule", "packets", "bytes"});
    for (const Json& pipe : member(domain, "pipes")) {
        const std::string name = text_of(pipe, "name");
        for (const Json& entry : member(pipe, "entries")) {
            if (!entry.contains("counter")) continue;
            table.add_row({name, print_rule(entry),
                           print_count(number(entry["counter"], "packets")),
                           print_count(number(entry["counter"], "bytes"))});
        }
        table.add_row({name, "(all hits)", print_count(number(pipe, "hits")), ""});
        const Json& misses = member(pipe, "misses");
        table.add_row({name, "(miss)", print_count(number(misses, "packets")),
                       print_count(number(misses, "bytes"))});
    }
    const std::string pf = text_of(domain, "pf");
    if (table.is_empty()) return fmt::format("{}: no pipes\n", pf);
    return fmt::format("{}\n{}", pf, table.print());
}

std::string draw_domains(const Json& domains) {
    std::string text = "digraph flow {\n  rankdir=LR;\n  node [fontname=monospace fontsize=10];\n";
    for (const Json& domain : domains) text += Drawing(domain).draw();
    return text + "}\n";
}

std::string print_traced_packet(const Json& packet) {
    std::string text = fmt::format("packet {} from {}, {} bytes: {}\n", number(packet, "number"),
                                   text_of(packet, "ingress"), number(packet, "length"),
                                   text_of(packet, "summary"));
    for (const Json& step : member(packet, "steps")) {
        const std::uint64_t branch = number(step, "branch");
        text += branch == 0 ? "  " : fmt::format("  copy {} | ", branch);
        text += text_of(step, "pipe") + ": ";
        const std::string seen = joined(member(step, "matched"), " ");
        if (text_of(step, "outcome") == "hit") {
            text += fmt::format("hit entry {}", number(step, "entry"));
        } else {
            text += "miss, " + text_of(step, "reason");
        }
        if (!seen.empty()) text += fmt::format(" ({})", seen);
        if (const std::string changed = joined(member(step, "changed"), "; "); !changed.empty()) {
            text += " | " + changed;
        }
        text += " -> " + print_forward(member(step, "forward")) + "\n";
    }
    if (packet.value("cut", false)) text += "  ... and more steps\n";
    return text;
}

}  // namespace rdmalab::launcher
