// SPDX-License-Identifier: Apache-2.0
// The next token of one sequence, position after position.
#pragma once

#include <set>
#include <span>

#include "core/execute/executor.hpp"
#include "session/data/tokenizer.hpp"
#include "session/planning/setup.hpp"

namespace eng {

class Decoder {
 public:
  // For up to `length` positions, with a setup that was made for so many. `advice`: what to change if it does not fit.
  // Throws Error(host or device memory).
  Decoder(const Config& config, Registry& registry, std::shared_ptr<const Setup> setup, int64_t length,
          const std::string& advice);

  // The weights: fill() takes elements of the parameters of setup().plan, ready() ends that.
  Fill fill();
  void ready() { executor_->run("publish"); }
  // Begins another sequence.
  void reset();

  // Appends `tokens` to the sequence; afterwards `logits` are those of the next token. Throws Error(Exit::numerics).
  void feed(std::span<const int32_t> tokens);
  std::span<const float> logits() const;
  int64_t position() const { return position_; }
  const Setup& setup() const { return *setup_; }

 private:
  std::span<const int32_t> run(const std::string& program, std::span<const int32_t> tokens, int64_t n);
  const std::shared_ptr<const Setup> setup_;
  int64_t length_, position_ = 0;
  Device device_;
  Host host_;
  std::unique_ptr<Executor> executor_;
};

// The ids that end a text, according to the tokenizer, config.json and generation_config.json.
std::set<int32_t> ends_of_text(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& directories);

}  // namespace eng
