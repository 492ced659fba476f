// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories of tests/models/hf, copies of them that are changed, and their losses.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/execute/executor.hpp"
#include "engine/ops.h"
#include "session/checkpoint/safetensors.hpp"
#include "session/config/schemas.hpp"
#include "session/file.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"
#include "session/run/weights.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace models {

namespace fs = std::filesystem;

inline const fs::path goldens = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf";

inline eng::Registry& plugins() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/cpu", "llama/llama", "decoders/decoders", "opt/opt", "mamba/hybrids", "mamba/mamba",
                             "moe/moe", "optim/optim", "precision/precision", "data/data", "transform/low_rank"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline eng::Config config_from(const fs::path& directory, const std::string& more = "") {
  static const eng::SchemaSource schemas = [] {
    eng::SchemaSource all = schemas_of(plugins());
    all.model_of = [](const auto& from, const auto& plugin) {
      return eng::read_model_source(from, plugin, schemas_of(plugins()));
    };
    return all;
  }();
  return eng::Config::parse("[model]\nfrom = '" + directory.string() + "'\n" + more +
                                "[train]\nmicro_batch = 2\nsequence_length = 16\n[device]\nthreads = 1\n",
                            "from.toml", "/", {}, schemas);
}

inline const nlohmann::json& expected() {
  static const auto json = nlohmann::json::parse(std::ifstream(goldens / "expected.json"));
  return json;
}

inline std::vector<int32_t> ids(const char* what) {
  std::vector<int32_t> out;
  for (const auto& row : expected().at(what))
    for (const auto& id : row) out.push_back(id);
  return out;
}

// The mean loss of the weights in a directory, on the golden's batch.
inline double loss_of(const fs::path& directory, const std::string& more = "") {
  const eng::Config config = config_from(directory, more);
  const eng::Setup setup = eng::make_setup(config, plugins());
  eng::Device device(plugins(), "cpu", config.section("device"));
  eng::Executor executor(setup.plan, device, *setup.kernels);
  executor.run("init");
  size_t filled = 0;
  const eng::Fill fill = [&](const eng::TensorSpec& t, uint64_t first, uint64_t n, const void* data) {
    executor.upload(setup.plan.find(t.name, t.role)->whole(), first * 4, data, n * 4);
    filled += n;
  };
  eng::load_weights(directory, eng::pretrained_table(config, plugins()), eng::parameters(setup.plan), fill);
  CHECK(filled == static_cast<size_t>(setup.plan.parameters));
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(setup.plan.counters, counters);
  const auto tokens = ids("tokens"), labels = ids("labels");
  executor.upload(setup.plan.field("tokens"), tokens.data());
  executor.upload(setup.plan.field("labels"), labels.data());
  executor.run("eval");
  float sum = 0;
  executor.download(&sum, setup.plan.losses, 0, sizeof sum);
  return sum / static_cast<double>(std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l >= 0; }));
}

// A copy of a golden directory that may be damaged.
inline fs::path copy(const eng::test::Scratch& scratch, const char* name) {
  fs::copy(goldens / name, scratch / name, fs::copy_options::recursive);
  return scratch / name;
}

inline void edit(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = eng::test::read_file(file);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  eng::test::write_file(file, text.replace(at, from.size(), to));
}

inline std::string refused(const fs::path& directory, const std::string& more = "") {
  return eng::test::refusal(eng::Exit::checkpoint, [&] { loss_of(directory, more); });
}

}  // namespace models
