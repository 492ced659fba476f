// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of a vocabulary whose rows ranks divide: the scores of a rank's rows, and their gradients.
#include "../../common/vocabulary.hpp"

#include <cmath>
#include <iterator>

#include "head.hpp"
#include "kernels.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

using common::row_of_label;
using common::VocabularyLoss;

void check_part(const Call& c) {
  need_one_type(c, 3, 2);
  need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
  need_size("labels", elements(c.in[2]), rows(c.in[0]));
  const int64_t first = c.integer("first");
  if (rows(c.in[1]) < 1 || first < 0 || first > c.integer("whole") - rows(c.in[1]))
    throw Error{ENG_INVALID, "the rows of w must lie in 0 .. whole - 1"};
}

// The rows of this rank.
struct VocabularyPart {
  const Device& device;
  HeadSizes sizes;
  int64_t first, whole;
  VocabularyPart(const Call& c, void* self)
      : device(device_of(self)), sizes(c, 1), first(c.integer("first")), whole(c.integer("whole")) {}
  float* logits(const Args& a) const {
    return reinterpret_cast<float*>(static_cast<char*>(a.workspace) + sizes.logits_at());
  }
  int64_t row_of(int32_t label) const { return row_of_label(label, first, sizes.vocabulary, whole); }
  void check_labels(const int32_t* labels) const {
    for (int64_t t = 0; t < sizes.tokens; ++t)
      if (labels[t] != ignored) row_of(labels[t]);
  }
  // Calls use(thread, token, its logits) for all tokens of one chunk after the other, and then after(first token,
  // number).
  template <class Use, class After>
  void each_row(const Args& a, Use use, After after) const {
    const HeadSizes& s = sizes;
    for (int64_t from = 0; from < s.tokens; from += s.chunk) {
      const int64_t n = std::min(s.chunk, s.tokens - from);
      Gemm(device, s.logits(n), s.threads)
          .run(s.x_at(a.in<void>(0), from), a.in<void>(1), nullptr, 0, logits(a), a.workspace);
      parallel_tasks(s.threads, n, [&](unsigned thread, int64_t task) {
        float* const row = logits(a) + task * s.vocabulary;
        if (s.cap > 0) device.isa->cap_row(row, s.vocabulary, s.cap, row);
        use(thread, from + task, row);
      });
      after(from, n);
    }
  }
};

struct VocabularyScores : VocabularyPart {
  static constexpr const char* op = ENG_OP_VOCABULARY_SCORES;

  static void check(const Call& c) {
    need_arguments(c, 3, 3, 1), check_part(c), need_f32(c.out[0], "scores");
    need_size("elements of scores", elements(c.out[0]), 2 * elements(c.in[2]));
  }
  static uint64_t workspace(const Call& c) { return HeadSizes(c, 1).bytes(); }
  using VocabularyPart::VocabularyPart;

  void run(const Args& a) const {
    const int32_t* labels = a.in<int32_t>(2);
    float *const lses = a.out<float>(0), *const scores = lses + sizes.tokens;
    check_labels(labels);
    const auto score = [&](unsigned, int64_t t, float* row) {
      lses[t] = scores[t] = 0.0f;
      if (labels[t] == ignored) return;
      const int64_t own = row_of(labels[t]);
      double lse = 0;
      device.isa->row_loss(row, sizes.vocabulary, std::max<int64_t>(own, 0), nullptr, &lse);
      lses[t] = static_cast<float>(lse);
      if (own >= 0) scores[t] = row[own];
    };
    each_row(a, score, [](int64_t, int64_t) {});
  }
};

struct VocabularyGrad : VocabularyPart {
  static constexpr const char* op = ENG_OP_VOCABULARY_GRAD;

  static void check(const Call& c) {
    const bool with_dw = c.integer_or("no_dw", 0) == 0;
    need_arguments(c, 5, 7, with_dw ? 2 : 1), check_part(c);
    need_f32(c.in[3], "lse"), need_f32(c.in[4], "scalars"), need_same_type(c.in[0], c.out[0], "x and dx");
    if (c.has(6)) need_f32(c.in[6], "loss weights"), need_size("loss weights", elements(c.in[6]), rows(c.in[0]));
    if (with_dw) need_sums(c, c.in[0].dtype, {5}, {1});
    if (elements(c.in[4]) <= ENG_S_LOSS_SCALE) throw Error{ENG_INVALID, "scalars has too few elements"};
    need_size("elements of lse", elements(c.in[3]), rows(c.in[0]));
    need_size("elements of dx", elements(c.out[0]), elements(c.in[0]));
    if (with_dw) need_size("elements of dw", elements(c.out[1]), elements(c.in[1]));
    if (c.has(5)) need_size("elements of dw_acc", elements(c.in[5]), elements(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return HeadSizes(c, 1).bytes(); }
  using VocabularyPart::VocabularyPart;

  void run(const Args& a) const {
    const HeadSizes& s = sizes;
    const int32_t* labels = a.in<int32_t>(2);
    const float *lse = a.in<float>(3), *scalars = a.in<float>(4), *weights = a.in<float>(6);
    const void *w = a.in<void>(1), *acc = a.in<void>(5);
    void* const dw = s.has_dw ? a.out<void>(1) : nullptr;
    const double all = double{scalars[ENG_S_INV_TOKENS]} * double{scalars[ENG_S_LOSS_SCALE]};
    check_labels(labels);
    // softmax of the own rows, then of all; the label's element anew, so that nothing cancels.
    float* const capped = reinterpret_cast<float*>(static_cast<char*>(a.workspace) + s.capped_at());
    const auto gradient = [&](unsigned thread, int64_t t, float* row) {
      if (labels[t] == ignored) return std::fill(row, row + s.vocabulary, 0.0f);
      const int64_t own = row_of(labels[t]), at = std::max<int64_t>(own, 0);
      const RowGradient unit{1.0f, 0.0f};
      const double kept = row[at], weight = weights ? double{weights[t]} : 1.0, one = weight * all * s.weight;
      const double factor = one + weight * all * s.z_loss * 2 * double{lse[t]};
      float* const before = capped + thread * s.vocabulary;
      if (s.cap > 0) std::copy(row, row + s.vocabulary, before);
      double mine = 0;
      device.isa->row_loss(row, s.vocabulary, at, &unit, &mine);
      const auto scale = static_cast<float>(factor * std::exp(mine - double{lse[t]}));
      for (int64_t v = 0; v < s.vocabulary; ++v) row[v] *= scale;
      row[at] = static_cast<float>(factor * std::exp(kept - double{lse[t]}) - (own >= 0 ? one : 0.0));
      if (s.cap > 0) device.isa->cap_row_grad(before, s.vocabulary, s.cap, row);
    };
    const auto products = [&](int64_t from, int64_t n) {
      char* const dx = a.out<char>(0) + from * s.width * stored_bytes(s.stored);
      Gemm(device, s.dx(n), s.threads).run(logits(a), w, nullptr, 0, dx, a.workspace);
      if (dw)
        Gemm(device, s.dw(n), s.threads).run(logits(a), s.x_at(a.in<void>(0), from), acc, s.width, dw, a.workspace);
      acc = dw;
    };
    each_row(a, gradient, products);
    if (s.tokens == 0 && dw)  // dw = acc, or zeros
      Gemm(device, s.dw(0), s.threads).run(logits(a), a.in<void>(0), acc, s.width, dw, a.workspace);
  }
};

}  // namespace

const eng_kernel* const vocabulary_kernels[] = {&kernel<VocabularyScores>, &kernel<VocabularyLoss>,
                                                &kernel<VocabularyGrad>};
const uint32_t vocabulary_kernel_count = std::size(vocabulary_kernels);

}  // namespace cpu
