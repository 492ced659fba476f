// SPDX-License-Identifier: Apache-2.0
// The trainer's evaluations: the loss of held-out samples, or of one batch.
#include <cmath>

#include "session/ranks/exchange.hpp"
#include "session/train/trainer.hpp"

namespace eng {
namespace {

// The values that ranks exchange after an evaluation.
struct Evaluated {
  uint64_t tokens, sequences;
  double sums[64];
};

}  // namespace

Evaluation Trainer::evaluate(int64_t batches, const std::function<void(const Batch&)>& seen, const char* program) {
  Evaluation out;
  const auto start = SteadyClock::now();
  if (setup_.plan.publishes_late) executor_.run("publish");
  const auto held_out = static_cast<int64_t>(data_.info().validation_samples);
  batches = std::min(batches, (held_out + cut_.rows - 1) / cut_.rows);
  Batch batch;
  const size_t n = std::max<size_t>(setup_.plan.terms.size(), 1);
  std::vector<double> sums(n, 0.0);
  uint64_t sequences = 0;
  // Each rank takes every world-th micro-batch; a micro-batch after the last does not count.
  for (int64_t k = cut_.rank; k - cut_.rank < batches; k += cut_.world) {
    batch.clear();
    data_.read(ENG_SPLIT_VALIDATION,
               k < batches ? static_cast<uint64_t>(k * cut_.rows) : data_.info().validation_samples, cut_.rows, batch);
    if (k < batches) sequences += static_cast<uint64_t>(std::min(cut_.rows, held_out - k * cut_.rows));
    if (seen && k < batches) seen(batch);
    out.tokens += static_cast<uint64_t>(batch.valid);
    stage(batch);
    executor_.run(program);
    for (size_t t = 0; t < n; ++t) sums[t] += executor_.host<float>(setup_.plan.losses)[t];
  }
  together(out, sums, sequences);
  out.seconds = since(start);
  return out;
}

Evaluation Trainer::evaluate(const Batch& batch, const char* program) {
  Evaluation out;
  const auto start = SteadyClock::now();
  if (setup_.plan.publishes_late) executor_.run("publish");
  out.tokens = static_cast<uint64_t>(batch.valid);
  stage(batch);
  executor_.run(program);
  const float* losses = executor_.host<float>(setup_.plan.losses);
  together(out, {losses, losses + std::max<size_t>(setup_.plan.terms.size(), 1)}, static_cast<uint64_t>(cut_.rows));
  out.seconds = since(start);
  return out;
}

// `sums`: this rank's, of the losses of its tokens, one for each term; `sequences`: this rank's.
void Trainer::together(Evaluation& out, std::vector<double> sums, uint64_t sequences) {
  const size_t n = sums.size();
  if (!single_rank()) {
    Evaluated mine{out.tokens, sequences, {}};
    std::copy(sums.begin(), sums.end(), mine.sums);
    const auto all = exchange_records(exchange_, mine, "the sums of an evaluation");
    out.tokens = 0, sequences = 0, sums.assign(n, 0.0);
    for (const Evaluated& one : all) {
      out.tokens += one.tokens, sequences += one.sequences;
      for (size_t t = 0; t < n; ++t) sums[t] += one.sums[t];
    }
  }
  const auto labels = static_cast<double>(std::max<uint64_t>(out.tokens, 1));
  const Counts counts{labels, static_cast<double>(std::max<uint64_t>(sequences, 1))};
  out.loss = out.tokens ? mean_loss(setup_.plan, sums, counts) : NAN;
  out.terms = term_means(setup_.plan, sums, counts);
  const auto& terms = setup_.plan.terms;
  const auto language = std::find_if(terms.begin(), terms.end(), [](const Term& t) { return t.cross_entropy; });
  if (!terms.empty())
    out.cross_entropy = language == terms.end() ? NAN : sums[static_cast<size_t>(language - terms.begin())] / labels;
}

}  // namespace eng
