// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

namespace nvme {

namespace {

std::string in_full(const char* key) {
  return std::string("offload.") + key;
}

// True if there is a value; an absent key keeps its default.
bool present(eng_status status, const char* key) {
  if (status == ENG_OK) return true;
  if (status == ENG_NOT_FOUND) return false;
  throw Error{status, in_full(key) + ": the engine did not hand over this option"};
}

uint64_t number(const eng_options* options, const char* key, uint64_t value, int64_t least, int64_t most,
                int64_t multiple) {
  int64_t given = 0;
  if (!present(options->get_int(options, key, &given, nullptr), key)) return value;
  if (given < least || given > most || given % multiple != 0)
    throw Error{ENG_INVALID, in_full(key) + " is " + std::to_string(given) + ": it must be from " +
                                 std::to_string(least) + " to " + std::to_string(most) +
                                 (multiple > 1 ? ", a multiple of " + std::to_string(multiple) : "")};
  return static_cast<uint64_t>(given);
}

double rate(const eng_options* options, const char* key) {
  return static_cast<double>(number(options, key, 0, 1, INT64_MAX, 1));
}

}  // namespace

Settings read_settings(const eng_options* options) {
  Settings out;
  uint32_t count = 0;
  if (!present(options->get_count(options, "nvme_paths", &count, nullptr), "nvme_paths")) count = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const char* path = nullptr;
    if (present(options->get_string_at(options, "nvme_paths", k, &path, nullptr), "nvme_paths"))
      out.paths.emplace_back(path);
  }
  if (out.paths.empty()) throw Error{ENG_INVALID, "offload.nvme_paths is empty: name at least one directory on a disk"};
  for (const std::string& path : out.paths)
    if (path.empty() || path[0] != '/')
      throw Error{ENG_INVALID,
                  "offload.nvme_paths: \"" + path + "\" is not absolute: write the whole path of a folder on the disk"};
  out.block = number(options, "nvme_block", out.block, page, int64_t{1} << 30, page);
  out.depth = static_cast<uint32_t>(number(options, "nvme_depth", out.depth, 1, 4096, 1));
  int32_t direct = 1;
  if (present(options->get_bool(options, "nvme_direct", &direct, nullptr), "nvme_direct")) out.direct = direct != 0;
  out.read_bandwidth = rate(options, "nvme_read_bandwidth");
  out.write_bandwidth = rate(options, "nvme_write_bandwidth");
  return out;
}

}  // namespace nvme
