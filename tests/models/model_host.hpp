// SPDX-License-Identifier: Apache-2.0
// The smallest host of a model: creates it and runs its blocks in a FakeBuild.
#pragma once

#include <catch2/catch.hpp>

#include "engine/model.h"
#include "fake_build.hpp"
#include "plugin_file.hpp"

namespace models {

class Hosted {
 public:
  // `name` is that of the model.
  Hosted(const PluginFile& plugin, const std::string& name, const Values& given)
      : table_(plugin.table<eng_model>(ENG_MODEL_KIND, name)) {
    const FakeOptions options(plugin, name, given);
    ErrorText error;
    if (table().create(&options, &self_, &error) != ENG_OK) throw std::runtime_error(error.text);
  }
  Hosted(const Hosted&) = delete;
  Hosted& operator=(const Hosted&) = delete;
  ~Hosted() { table().destroy(self_); }

  const eng_model& table() const { return table_; }
  void* self() const { return self_; }

  eng_model_info describe() const {
    eng_model_info info{};
    info.struct_size = sizeof info;
    REQUIRE(table().describe(self_, &info, nullptr) == ENG_OK);
    return info;
  }
  void declare(FakeBuild& b) const {
    ErrorText error;
    if (table().declare(self_, &b, &error) != ENG_OK) throw std::runtime_error(error.text);
  }
  // Runs all blocks on b.batch with parameters by name; returns the sum of token losses.
  double loss(FakeBuild& b, const std::map<std::string, Value>& params) const {
    b.clear_values();
    std::vector<eng_id> stream;
    for (const Block& block : b.blocks) {
      std::vector<eng_id> ids;
      for (eng_id id : block.params) ids.push_back(b.add(params.at(b.params.at(id - 1).name)));
      eng_id out[4] = {0, 0, 0, 0};
      uint32_t n = 0;
      ErrorText error;
      const eng_status status = table().trace(self_, &b, block.tmpl, ids.data(), static_cast<uint32_t>(ids.size()),
                                              stream.data(), static_cast<uint32_t>(stream.size()), out, 4, &n, &error);
      if (status != ENG_OK) throw std::runtime_error(block.name + ": " + error.text);
      stream.assign(out, out + n);
    }
    return b.value(stream.at(0)).data.at(0);
  }

 private:
  const eng_model& table_;
  void* self_ = nullptr;
};

inline const PluginFile& llama_plugin() {
  static const PluginFile plugin("llama");
  return plugin;
}
struct Llama : Hosted {
  explicit Llama(const Values& given) : Hosted(llama_plugin(), "llama", given) {}
};

inline const PluginFile& opt_plugin() {
  static const PluginFile plugin("opt");
  return plugin;
}
struct Opt : Hosted {
  explicit Opt(const Values& given) : Hosted(opt_plugin(), "opt", given) {}
};

}  // namespace models
