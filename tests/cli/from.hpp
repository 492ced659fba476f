// SPDX-License-Identifier: Apache-2.0
// Runs from Hugging Face directories, and the tensors of such directories.
#pragma once

#include <cstring>
#include <map>

#include "harness.hpp"

namespace cli {

inline const fs::path goldens = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf";

// Tensor -> its bytes, of all safetensors files of a directory.
inline std::map<std::string, std::string> stored(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const std::string& name : names(directory)) {
    if (fs::path(name).extension() != ".safetensors") continue;
    const std::string bytes = read(directory / name);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const Json header = Json::parse(bytes.substr(8, length));
    for (const auto& [tensor, entry] : header.items()) {
      if (tensor == "__metadata__") continue;
      const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      out[tensor] =
          entry["dtype"].get<std::string>() + entry["shape"].dump() + bytes.substr(8 + length + begin, end - begin);
    }
  }
  return out;
}

// A run of `steps` steps from `source`; a rate of 1e-30 changes no weight.
inline Result run_from(const Scratch& scratch, const fs::path& source, const std::string& out, const Args& more = {}) {
  scratch.write("from.toml", "[model]\nfrom = \"" + source.string() +
                                 "\"\n[data]\npaths = [\"text.txt\"]\nvalidation = 0.1\n[train]\nsteps = 1\n"
                                 "sequence_length = 16\nmicro_batch = 2\n[optimizer]\nlearning_rate = 1e-30\n"
                                 "[device]\nthreads = 1\n");
  Args args = {"run", "from.toml", "--out", out};
  args.insert(args.end(), more.begin(), more.end());
  return engine(scratch, args);
}

}  // namespace cli
