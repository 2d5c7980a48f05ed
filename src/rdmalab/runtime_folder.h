// Where running cards are found. Card N listens on <folder>/N.sock, holds a lock on <folder>/N.lock
// and logs to <folder>/N.log; the rule for the folder is the one of card/host/admin.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rdmalab::launcher {

inline constexpr char kDefaultCard[] = "default";
inline constexpr std::size_t kCardNameMax = 48;

std::filesystem::path runtime_folder();

// A card name as the user wrote it; throws Failure when it cannot name a card.
void check_card_name(const std::string& name);
// What --name means when it is absent: $RDMALAB_CARD (set by `rdmalab run`), else "default".
std::string card_name_or_default(const std::string& name);
bool is_card_named(const std::string& name);  // by --name or $RDMALAB_CARD

struct CardFiles {
    std::filesystem::path socket, lock, log;
    std::filesystem::path namespaces;  // the record of those that the card made
};
CardFiles card_files(const std::string& name);

// Names of cards that have a socket or a record of namespaces in the folder, sorted; whether a card
// listens there is another question.
std::vector<std::string> names_in_use();

// The folder of the programs themselves and what lies relative to it.
std::filesystem::path own_folder();
std::filesystem::path card_program();    // rdmalab-card
std::filesystem::path library_folder();  // of the drop-in libraries

}  // namespace rdmalab::launcher
