// The files of a lab, in the folder `lab` of the runtime folder: keys and configuration that its
// hosts share (they see them as /run/lab), its record, and a lock that the keeper and all hosts
// hold as long as they live.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "rdmalab/fd.h"
#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

std::filesystem::path lab_folder();
std::filesystem::path lab_log();

// Takes the lock for a new lab; throws Failure when there is one, and removes what a dead one left.
Fd claim_lab_folder();
// False: somebody of a lab still lives.
bool is_lab_folder_idle();
void remove_lab_folder();

void write_lab_file(const std::string& name, const std::string& content, unsigned mode = 0644);
void record_lab(const Lab& lab);
// Nothing when no lab is up.
std::optional<Lab> find_lab();
// Throws Failure.
Lab find_lab_or_fail();
const LabHost& find_host_or_fail(const Lab& lab, const std::string& name);

// Sleeps; for conditions that nobody tells about.
void pause_ms(int milliseconds);

// Runs a program of the system to its end; throws Failure with what it printed. `hint` is added
// when there is no such program.
std::string run_tool(const std::vector<std::string>& words, const std::string& input = {},
                     const std::string& hint = {});

}  // namespace rdmalab::launcher
