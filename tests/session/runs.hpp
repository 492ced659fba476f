// SPDX-License-Identifier: Apache-2.0
// Runs of a very small model in this process, without the command.
#pragma once

#include "session/run/run.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace eng::test {

inline constexpr const char* text = R"([model]
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
steps = 4
micro_batch = 2
sequence_length = 16
eval_every = 2

[optimizer]
plugin = "adamw"
learning_rate = 1e-3

[checkpoint]
every = 2
)";

class Heard final : public RunListener {
 public:
  std::vector<std::string> notes, events;
  std::vector<double> losses, rates;
  int64_t stop_after = 0;
  static inline bool stop = false;

  void note(const std::string& note) override { notes.push_back(note); }
  void passed_over(const CheckpointRow& row) override {
    events.push_back("passed over " + row.path.filename().string());
  }
  void reading(const std::filesystem::path&, uint64_t, uint64_t) override { events.push_back("reading"); }
  void started(const RunStart& start) override {
    events.push_back("started at " + std::to_string(start.step) + (start.from ? " from a checkpoint" : ""));
  }
  void step(const Metrics& metrics, double) override {
    losses.push_back(metrics.loss), rates.push_back(metrics.lr);
    stop = stop_after && metrics.step == stop_after;
  }
  void evaluated(int64_t step, const Evaluation&) override { events.push_back("evaluated " + std::to_string(step)); }
  void alert(int64_t step, const std::string& text) override {
    events.push_back("alert " + std::to_string(step) + " " + text);
  }
  void saving() override { events.push_back("saving"); }
  void saved(const Saved& saved) override { events.push_back("saved " + saved.path.filename().string()); }
};

struct Folder : Scratch {
  Folder() {
    std::string words;
    for (int k = 0; k < 400; ++k) words += "plan " + std::to_string(k * 7919 % 1000) + (k % 9 ? " " : "\n");
    write_file(*this / "text.txt", words);
    write_file(*this / "config.toml", text);
  }
  RunRequest request(const std::string& target, std::vector<std::string> overrides = {}) const {
    RunRequest out;
    out.open = {*this / target, std::move(overrides), {}, {}};
    for (const char* folder : {"cpu", "data", "llama", "optim", "precision", "zero"})
      out.open.plugin_paths.push_back(std::filesystem::path(ENGINE_PLUGIN_DIR) / folder);
    out.stop = [] { return Heard::stop; };
    return out;
  }
};

inline RunEnd run(const RunRequest& request, Heard& heard) {
  Heard::stop = false;
  Member member({"engine run", {"run"}});
  return run_rank(request, member, heard);
}

}  // namespace eng::test
