// SPDX-License-Identifier: Apache-2.0
// The trainer's evaluations: the loss of held-out samples, or of one batch.
#include <cmath>

#include "session/model/caller_loss.hpp"
#include "session/ranks/exchange.hpp"
#include "session/train/trainer.hpp"

namespace eng {
namespace {

// The values that ranks exchange after an evaluation.
struct Evaluated {
  uint64_t tokens, sequences;
  double divisor, sums[64];
};

}  // namespace

// The term of the caller's loss is a sum with the gradient of some step, and no loss.
void Trainer::need_own_loss() const {
  if (caller_loss(config_))
    throw Error(Exit::usage, "loss.plugin = \"caller\": the engine has no loss to evaluate",
                "compute it from the logits, or evaluate with loss.plugin=cross_entropy");
}

Evaluation Trainer::evaluate(int64_t batches, const std::function<void(const Batch&)>& seen, const char* program) {
  need_own_loss();
  Evaluation out;
  const auto start = SteadyClock::now();
  settle();
  if (setup_.plan.publishes_late) executor_.run("publish");
  Batch batch;
  const size_t n = std::max<size_t>(setup_.plan.terms.size(), 1);
  Sums all{0, 0, 0, std::vector<double>(n, 0.0)};
  for (size_t part = 0; part < data_.held_out().size(); ++part) {
    const auto [first, samples] = data_.held_out()[part];
    const auto held_out = static_cast<int64_t>(samples);
    const int64_t some = std::min(batches, (held_out + cut_.rows - 1) / cut_.rows);
    Sums sums{0, 0, 0, std::vector<double>(n, 0.0)};
    // Each rank takes every world-th micro-batch; a micro-batch after the last does not count.
    for (int64_t k = cut_.rank; k - cut_.rank < some; k += cut_.world) {
      batch.clear();
      data_.read(ENG_SPLIT_VALIDATION, first + (k < some ? static_cast<uint64_t>(k * cut_.rows) : samples), cut_.rows,
                 batch, first + samples);
      if (k < some) sums.sequences += static_cast<uint64_t>(std::min(cut_.rows, held_out - k * cut_.rows));
      if (seen && k < some) seen(batch);
      sums.tokens += static_cast<uint64_t>(batch.valid), sums.divisor += batch.divisor();
      stage(batch);
      executor_.run(program);
      for (size_t t = 0; t < n; ++t) sums.losses[t] += executor_.host<float>(setup_.plan.losses)[t];
    }
    sums = together(std::move(sums));
    all.tokens += sums.tokens, all.sequences += sums.sequences, all.divisor += sums.divisor;
    for (size_t t = 0; t < n; ++t) all.losses[t] += sums.losses[t];
    if (data_.names().empty() || !sums.tokens) continue;
    Evaluation of_part;
    conclude(of_part, sums);
    out.sources.push_back({data_.names()[part], of_part.loss});
  }
  conclude(out, all);
  out.seconds = since(start);
  return out;
}

Evaluation Trainer::evaluate(const Batch& batch, const char* program) {
  need_own_loss();
  Evaluation out;
  const auto start = SteadyClock::now();
  settle();
  if (setup_.plan.publishes_late) executor_.run("publish");
  stage(batch);
  executor_.run(program);
  const float* losses = executor_.host<float>(setup_.plan.losses);
  conclude(out, together({static_cast<uint64_t>(batch.valid),
                          static_cast<uint64_t>(cut_.rows),
                          batch.divisor(),
                          {losses, losses + std::max<size_t>(setup_.plan.terms.size(), 1)}}));
  out.seconds = since(start);
  return out;
}

// From this rank's sums to those of all ranks.
Trainer::Sums Trainer::together(Sums mine) const {
  if (single_rank()) return mine;
  Evaluated sent{mine.tokens, mine.sequences, mine.divisor, {}};
  std::copy(mine.losses.begin(), mine.losses.end(), sent.sums);
  Sums out{0, 0, 0, std::vector<double>(mine.losses.size(), 0.0)};
  const std::vector<Evaluated> all = exchange_records(exchange_, sent, "the sums of an evaluation");
  const Ranks& ranks = setup_.plan.ranks;
  // The last stage has the sums; ranks of a tensor group have the same.
  for (size_t r = all.size() - ranks.stage_size(); r < all.size(); r += ranks.tensor) {
    const Evaluated& one = all[r];
    if (r % ranks.same_rows() == 0)
      out.tokens += one.tokens, out.sequences += one.sequences, out.divisor += one.divisor;
    for (size_t t = 0; t < out.losses.size(); ++t) out.losses[t] += one.sums[t];
  }
  return out;
}

void Trainer::conclude(Evaluation& out, const Sums& sums) const {
  out.tokens = sums.tokens;
  const double labels = sums.divisor > 0 ? sums.divisor : 1;
  const Counts counts{labels, static_cast<double>(std::max<uint64_t>(sums.sequences, 1))};
  out.loss = out.tokens ? mean_loss(setup_.plan, sums.losses, counts) : NAN;
  out.terms = term_means(setup_.plan, sums.losses, counts);
  const auto& terms = setup_.plan.terms;
  const auto language = std::find_if(terms.begin(), terms.end(), [](const Term& t) { return t.cross_entropy; });
  if (!terms.empty())
    out.cross_entropy =
        language == terms.end() ? NAN : sums.losses[static_cast<size_t>(language - terms.begin())] / labels;
}

}  // namespace eng
