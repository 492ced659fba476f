// SPDX-License-Identifier: Apache-2.0
#include "session/text/decoder.hpp"

#include <cmath>

#include "core/plan/prefill.hpp"
#include "engine/ops.h"
#include "session/checkpoint/packed.hpp"
#include "session/huggingface/chat.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fits.hpp"

namespace eng {

Decoder::Decoder(const Config& config, Registry& registry, std::shared_ptr<const Setup> setup, int64_t length,
                 const std::string& advice)
    : setup_(std::move(setup)),
      rows_(static_cast<size_t>(setup_->model.micro_batch)),
      length_(length),
      device_(registry, setup_->kernels->device(), setup_->device) {
  const eng_device_info& info = setup_->kernels->info();
  if (info.total_bytes && planned_peak(*setup_) > info.total_bytes)
    throw Error(setup_->kernels->host_memory() ? Exit::host_memory : Exit::device_memory,
                fmt::format("generating up to {} tokens needs {}, device {} has {}", length,
                            format_bytes(static_cast<double>(planned_peak(*setup_))), setup_->kernels->device(),
                            format_bytes(static_cast<double>(info.total_bytes))),
                advice);
  release_freed_memory();  // of planning
  host_ = make_host(setup_->offload, config.section("offload"), registry, setup_->host.get(), 0);
  executor_ = std::make_unique<Executor>(setup_->plan, device_, *setup_->kernels, nullptr, true, &host_);
}

Fill Decoder::fill() {
  if (has_optional(setup_->plan)) executor_->run("init");
  return fill_of(setup_->plan, *executor_);
}

void Decoder::reset() {
  executor_->run("reset");
  position_ = 0;
}

void Decoder::feed(std::span<const int32_t> tokens) {
  const size_t all = tokens.size() / rows_;
  size_t at = 0;
  for (int64_t n = longest_prefill(setup_->model.micro_batch); n >= least_prefill; n /= 2)
    for (; all - at > static_cast<size_t>(n) && length_ > n; at += static_cast<size_t>(n))
      run(prefill_program(n), tokens, at, n);
  for (; at < all; ++at) run("decode", tokens, at, 1);
  for (size_t row = 0; row < rows_; ++row) {
    const std::span<const float> logits = this->logits(row);
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
      throw Error(Exit::numerics, fmt::format("the logits after {} tokens are not finite", position_),
                  "the weights contain values that are not finite, or too large for the number format");
  }
}

std::span<const float> Decoder::logits(size_t row) const {
  const View& view = setup_->plan.next_logits;
  const size_t n = static_cast<size_t>(count(view.desc)) / rows_;
  return {executor_->host<float>(view) + row * n, n};
}

// On tokens [from, from + n) of each row.
void Decoder::run(const std::string& program, std::span<const int32_t> tokens, size_t from, int64_t n) {
  const size_t all = tokens.size() / rows_;
  int32_t* to = executor_->host<int32_t>(setup_->plan.field("tokens"));
  for (size_t row = 0; row < rows_; ++row) to = std::copy_n(tokens.data() + row * all + from, n, to);
  executor_->host<int64_t>(setup_->plan.host_counters)[ENG_C_POSITION] = position_;
  executor_->run(program);
  position_ += n;
}

std::set<int32_t> ends_of_text(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& directories) {
  std::set<int32_t> out = {tokenizer.info().eos, tokenizer.info().eot};
  for (const auto& directory : directories)
    for (const int32_t id : end_ids(directory)) out.insert(id);
  out.erase(-1);
  return out;
}

}  // namespace eng
