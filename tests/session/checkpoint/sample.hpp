// SPDX-License-Identifier: Apache-2.0
// A small model's worth of tensors to save and load.
#pragma once

#include <cstring>
#include <map>

#include "core/tensor/dtype.hpp"
#include "scratch.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/safetensors.hpp"

namespace eng::test {

struct Sample {
  std::vector<TensorShare> specs;            // of one rank
  std::map<std::string, std::string> bytes;  // by "name role"

  static std::string key(const TensorSpec& t) { return t.name + " " + t.role; }

  explicit Sample(unsigned salt = 0) {
    add("model.embed_tokens.weight", "parameter", ENG_F32, {7, 4}, salt);
    add("model.norm.weight", "parameter", ENG_F32, {4}, salt);
    add("lm_head.weight", "parameter", ENG_BF16, {7, 4}, salt);
    for (const char* state : {"exp_avg", "exp_avg_sq"}) {
      add("model.embed_tokens.weight", state, ENG_F32, {7, 4}, salt);
      add("model.norm.weight", state, ENG_F32, {4}, salt);
    }
    add("none", "exp_avg", ENG_F32, {0, 3}, salt);
  }

  void add(const std::string& name, const std::string& role, int32_t dtype, std::vector<int64_t> shape, unsigned salt) {
    const TensorSpec t{name, role, dtype, std::move(shape)};
    std::string data(element_count(t.shape, "") * dtype_size(dtype), '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = char((i + 1) * 37 + specs.size() * 11 + salt);
    bytes[key(t)] = data;
    specs.push_back(whole({t})[0]);
  }

  Read read() const {
    return [this](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
      const uint64_t size = dtype_size(t.dtype);
      std::memcpy(host, bytes.at(key(t)).data() + first * size, count * size);
    };
  }

  RunPoint point(int64_t step) const {
    RunPoint p;
    p.step = step;
    p.updates = step - 1;
    p.tokens = uint64_t(step) * 2048;
    p.loss_scale = 65536;
    p.data = {{"train", uint64_t(step) * 8}, {"validation", 0}};
    p.seeds = {{"seed", 18446744073709551615u}};
    p.rng = {{"dropout", 12}};
    p.data_hash = "d00d";
    p.config_hash = "c0ffee";
    p.plugins = {{"adamw", "1.0", "ab"}, {"llama", "0.1", "cd"}};
    p.extra = {{"kernels", "a b \"c\""}};
    return p;
  }
};

// One checkpoint from begin to end; it must not exist.
inline Saved save_checkpoint(const std::filesystem::path& checkpoints, const RunPoint& point,
                             const std::vector<TensorShare>& tensors, const Read& read, std::span<char> staging = {},
                             const Peers& peers = {}) {
  Saver saver(checkpoints, 0, false, peers);
  saver.begin(point, tensors, read, staging);
  return *saver.finish();
}

// Collects what a load fills in, and how often.
struct Filled {
  std::map<std::string, std::string> bytes;
  std::map<std::string, std::vector<int>> times;
  uint64_t largest = 0;
  Fill fill() {
    return [this](const TensorSpec& t, uint64_t first, uint64_t count, const void* data) {
      const uint64_t size = dtype_size(t.dtype), all = element_count(t.shape, "");
      auto& to = bytes[Sample::key(t)];
      auto& n = times[Sample::key(t)];
      to.resize(all * size);
      n.resize(all);
      if (first + count > all) throw std::runtime_error("filled behind the end");
      std::memcpy(to.data() + first * size, data, count * size);
      for (uint64_t i = 0; i < count; ++i) ++n[first + i];
      largest = std::max(largest, count * size);
    };
  }
};

inline void check_equal(const Sample& sample, const Filled& filled) {
  for (const auto& t : sample.specs) {
    INFO(Sample::key(t));
    if (element_count(t.shape, "") == 0) continue;
    REQUIRE(filled.bytes.count(Sample::key(t)) == 1);
    CHECK(filled.bytes.at(Sample::key(t)) == sample.bytes.at(Sample::key(t)));
    for (int n : filled.times.at(Sample::key(t))) CHECK(n == 1);
  }
}

}  // namespace eng::test
