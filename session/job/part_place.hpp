// SPDX-License-Identifier: Apache-2.0
// The folder of each part of a job, `parts/K` in the directory of the analysis, and what it says once the part is done.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "session/held_folder.hpp"

namespace eng {

struct PartRecord {
  std::string data_hash, model_hash;
  uint64_t device_bytes = 0;  // that it allocated there
};

// All of it is called on rank 0. Makes the folder; a symbolic link is refused.
std::filesystem::path part_folder(const HeldFolder& analysis, uint32_t part);
// None: the part is not done.
std::optional<PartRecord> read_part(const std::filesystem::path& folder);
void write_part(const std::filesystem::path& folder, const PartRecord& record);
// Throws Error(Exit::usage) for the folder of a part.
void refuse_part(const std::filesystem::path& target);

}  // namespace eng
