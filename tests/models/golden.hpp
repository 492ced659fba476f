// SPDX-License-Identifier: Apache-2.0
// Reads tests/models/golden; the format is described in tools/goldens/llama.py.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace models {

struct GoldenTensor {
  std::vector<int64_t> dims;
  std::vector<double> data;  // i32 and f32 are exact in it
};

struct Golden {
  nlohmann::json about;
  std::map<std::string, GoldenTensor> tensors;

  std::string model() const { return about.value("model", "llama"); }
  const GoldenTensor& at(const std::string& name) const { return tensors.at(name); }
};

inline Golden read_golden(const std::string& variant, const std::string& family = "llama") {
  const std::string stem = std::string(ENGINE_SOURCE_DIR) + "/tests/models/golden/" + family + "_" + variant;
  Golden out;
  std::ifstream about(stem + ".json");
  if (!about) throw std::runtime_error("cannot read " + stem + ".json");
  out.about = nlohmann::json::parse(about);
  std::ifstream file(stem + ".safetensors", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t length = 0;
  if (bytes.size() < 8) throw std::runtime_error("cannot read " + stem + ".safetensors");
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    GoldenTensor& tensor = out.tensors[name];
    tensor.dims = entry["shape"].get<std::vector<int64_t>>();
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensor.data.resize((end - begin) / 4);
    const bool integer = entry["dtype"] == "I32";
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const char* at = bytes.data() + 8 + length + begin + 4 * i;
      int32_t whole = 0;
      float real = 0;
      std::memcpy(&whole, at, 4);
      std::memcpy(&real, at, 4);
      tensor.data[i] = integer ? whole : static_cast<double>(real);
    }
  }
  return out;
}

}  // namespace models
