// SPDX-License-Identifier: Apache-2.0
// The next tokens of sequences, position after position.
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
  // Begins other sequences.
  void reset();

  // The sequences, all at the same position: Readable::sequences of the setup.
  size_t rows() const { return rows_; }
  // Appends as many tokens to each sequence, (rows, n); afterwards `logits` are those of the next token. Throws
  // Error(Exit::numerics).
  void feed(std::span<const int32_t> tokens);
  std::span<const float> logits(size_t row = 0) const;
  int64_t position() const { return position_; }
  int64_t length() const { return length_; }
  const Setup& setup() const { return *setup_; }

 private:
  void run(const std::string& program, std::span<const int32_t> tokens, size_t from, int64_t n);
  const std::shared_ptr<const Setup> setup_;
  const size_t rows_;
  int64_t length_, position_ = 0;
  Device device_;
  Host host_;
  std::unique_ptr<Executor> executor_;
};

// The ids that end a text, according to the tokenizer, config.json and generation_config.json.
std::set<int32_t> ends_of_text(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& directories);

}  // namespace eng
