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
      length_(length),
      device_(registry, setup_->kernels->device(), config.section("device")) {
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
  for (int64_t n = prefill; n >= least_prefill; n /= 2)
    while (tokens.size() > static_cast<size_t>(n) && length_ > n) tokens = run(prefill_program(n), tokens, n);
  while (!tokens.empty()) tokens = run("decode", tokens, 1);
  const std::span<const float> logits = this->logits();
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
    throw Error(Exit::numerics, fmt::format("the logits after {} tokens are not finite", position_),
                "the weights contain values that are not finite, or too large for the number format");
}

std::span<const float> Decoder::logits() const {
  const View& view = setup_->plan.next_logits;
  return {executor_->host<float>(view), static_cast<size_t>(count(view.desc))};
}

std::span<const int32_t> Decoder::run(const std::string& program, std::span<const int32_t> tokens, int64_t n) {
  std::copy(tokens.begin(), tokens.begin() + n, executor_->host<int32_t>(setup_->plan.field("tokens")));
  executor_->host<int64_t>(setup_->plan.host_counters)[ENG_C_POSITION] = position_;
  executor_->run(program);
  position_ += n;
  return tokens.subspan(static_cast<size_t>(n));
}

std::set<int32_t> ends_of_text(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& directories) {
  std::set<int32_t> out = {tokenizer.info().eos, tokenizer.info().eot};
  for (const auto& directory : directories)
    for (const int32_t id : end_ids(directory)) out.insert(id);
  out.erase(-1);
  return out;
}

}  // namespace eng
