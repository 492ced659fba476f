// SPDX-License-Identifier: Apache-2.0
// The tier "nvme", loaded from its file, in folders that end with the test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/section.hpp"
#include "engine/plugin.h"
#include "engine/tier.h"

namespace disks {

namespace fs = std::filesystem;

struct Folder {
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

struct Given {
  std::vector<std::string> paths;
  int64_t block = 0, depth = 0;  // 0: not given
  bool direct = true;
};
eng::Section section(const Given& given);

const eng_tier& table();
const std::vector<std::string>& logged();  // by the plugin

// The result of a call, or "accepted".
struct Answer {
  eng_status status = ENG_OK;
  std::string text = "accepted";
};

struct Tier {
  explicit Tier(const Given& given, uint32_t rank = 0);  // throws std::runtime_error, with the text
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  void* self = nullptr;
};
Answer refusal_of_create(const Given& given);

struct Arena {
  Arena(Tier& tier, uint64_t bytes);  // throws std::runtime_error, with the text
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Answer read(uint64_t offset, void* to, uint64_t bytes) const;
  Answer write(uint64_t offset, const void* from, uint64_t bytes) const;
  Tier& tier;
  uint64_t bytes;
  void* self = nullptr;
};
Answer refusal_of_alloc(Tier& tier, uint64_t bytes);

// Random reads and writes against a copy in memory. "" or what was wrong.
std::string exercise(Tier& tier, uint64_t bytes, uint32_t seed, int rounds);

// Descriptors of this process that lead into the folder.
std::vector<int> open_files(const fs::path& folder);

bool direct_possible(const fs::path& folder);
// The values of nvme_direct that a folder allows: {true, false}, or {false} and a warning of the test.
std::vector<bool> direct_choices(const fs::path& folder);

// Runs `body` in a process of its own. True if it returned true.
bool in_child(const std::function<bool()>& body);
// From now on a call of the system fails; if `argument` >= 0, only if that argument has one of the bits.
// False if the system does not permit that.
bool refuse_call(int number, int error, int argument = -1, uint32_t bits = 0);

}  // namespace disks
