// SPDX-License-Identifier: Apache-2.0
// A configuration of its own for each test, and sessions of it. Only engine/embed.h is used, as other programs do.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/data.h"
#include "engine/embed.hpp"

namespace embed {

namespace fs = std::filesystem;

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr const char* config = R"([model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 16
intermediate_size = 32
num_attention_heads = 2

[data]
paths = ["text.txt"]
validation = 0.2

[train]
steps = 6
micro_batch = 2
accumulate = 2
sequence_length = 16
eval_every = 3

[optimizer]
plugin = "adamw"
learning_rate = 1e-3

[checkpoint]
every = 3
)";

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "engine-embed-XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    path_ = name;
    std::ofstream text(path_ / "text.txt");
    for (int k = 0; k < 400; ++k) text << "plan " << k * 7919 % 1000 << (k % 9 ? " " : "\n");
    std::ofstream(path_ / "config.toml") << config;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  engine::Options options(const std::string& out = "", std::vector<std::string> overrides = {}) const {
    engine::Options o((path_ / "config.toml").string());
    o.overrides = std::move(overrides);
    if (out.empty())
      o.flags = ENG_SESSION_NO_FILES;
    else
      o.out = (path_ / out).string();
    return o;
  }
  // The run directory that `engine run` writes with the same configuration.
  fs::path run(const std::string& out, const std::string& words = "") const {
    const std::string command = std::string(ENGINE_COMMAND) + " run " + (path_ / "config.toml").string() + " --out " +
                                (path_ / out).string() + " " + words + " 2> " + (path_ / "err").string();
    if (std::system(command.c_str()) != 0) throw std::runtime_error(read(path_ / "err"));
    return path_ / out;
  }

 private:
  fs::path path_;
};

// The bytes of all tensors of a run's checkpoint.
inline std::string checkpoint(const fs::path& run, const std::string& step) {
  std::string out;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints" / step))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) out += read(file);
  return out;
}

// The losses of metrics.jsonl, as they are written.
inline std::vector<std::string> losses(const fs::path& run) {
  std::vector<std::string> out;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("\"loss\"");
    out.push_back(line.substr(at, line.find(',', at) - at));
  }
  return out;
}

// A refusal: its status, and its text in `what`.
template <class Work>
eng_status refused(std::string& what, const Work& work) {
  try {
    work();
  } catch (const engine::Error& e) {
    what = e.what();
    return e.status;
  }
  what.clear();
  return ENG_OK;
}

// A tensor that a stranger made, dense or not; `deleted` counts its deleter.
struct Foreign {
  std::vector<int64_t> data;
  std::vector<int64_t> shape, strides;
  int deleted = 0;
  DLManagedTensorVersioned versioned{};
  DLManagedTensor legacy{};
  Foreign(std::vector<int64_t> values, std::vector<int64_t> dims)
      : data(std::move(values)), shape(std::move(dims)), strides(shape.size(), 1) {
    for (size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
    const DLTensor t = {
        data.data(), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), {kDLInt, 64, 1}, shape.data(), strides.data(), 0};
    versioned = {{1, 3},
                 this,
                 [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; },
                 0,
                 t};
    legacy = {t, this, [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; }};
  }
  eng_tensor_in in(const char* name) { return {sizeof(eng_tensor_in), 0, name, &versioned, nullptr, nullptr}; }
  eng_tensor_in old(const char* name) { return {sizeof(eng_tensor_in), 0, name, nullptr, &legacy, nullptr}; }
};

// One step with these fields.
inline double step(engine::Session& run, std::vector<eng_tensor_in> fields) {
  eng_step_result out{};
  out.struct_size = sizeof(out);
  engine::call(eng_session_step, run.get(), fields.data(), static_cast<uint32_t>(fields.size()), &out);
  return out.loss;
}

// Ids for a batch of these many, some of them equal.
inline std::vector<int64_t> ids(size_t n, int64_t seed = 1) {
  std::vector<int64_t> out(n);
  for (size_t k = 0; k < n; ++k) out[k] = (static_cast<int64_t>(k) * 37 + seed * 11) % 97 + 32;
  return out;
}

}  // namespace embed
