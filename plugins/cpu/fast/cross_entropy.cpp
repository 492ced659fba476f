// SPDX-License-Identifier: Apache-2.0
// eng.cross_entropy/1, eng.capped_cross_entropy/1, eng.label_logprob/1 and their gradients: logits exist for one chunk
// of tokens at a time. eng.softcap/1.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "../../common/kernel.hpp"
#include "engine/ops_softcap.h"
#include "head.hpp"
#include "kernels.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

using Sizes = HeadSizes;

void need_vocabulary(const Call& c) {
  if (rows(c.in[1]) < 1) throw Error{ENG_INVALID, "w has no rows"};
  const int64_t v = c.integer_or("vocabulary", rows(c.in[1]));
  if (v < 1 || v > rows(c.in[1])) throw Error{ENG_INVALID, "vocabulary must be 1 to the number of rows of w"};
}
// `weights`: the input with loss weights; `z`: the output of the second sum.
void check_common(const Call& c, size_t weights, size_t z) {
  if (c.has(weights)) {
    need_f32(c.in[weights], "loss weights");
    need_size("loss weights", elements(c.in[weights]), rows(c.in[0]));
  }
  if (c.real_or("z_loss", 0.0) > 0) need_f32(c.out[z], "z"), need_size("elements of z", elements(c.out[z]), 1);
  need_one_type(c, 3, 2), need_f32(c.out[0], "loss");
  need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
  need_size("labels", elements(c.in[2]), rows(c.in[0]));
  need_size("elements of loss", elements(c.out[0]), 1);
  need_vocabulary(c);
}

// The row-wise part of a chunk: the loss of each token and the gradient of its logits.
struct Rows {
  const Isa* isa;
  Sizes sizes;
  const int32_t* labels;
  const float* weights;  // or null
  double *losses, *squares;
  float *logits, *capped;

  Rows(const Device& device, const Sizes& s, const int32_t* given, const float* weighted, void* workspace)
      : isa(device.isa),
        sizes(s),
        labels(given),
        weights(weighted),
        losses(reinterpret_cast<double*>(static_cast<char*>(workspace) + s.losses_at())),
        squares(s.z_loss > 0 ? reinterpret_cast<double*>(static_cast<char*>(workspace) + s.squares_at()) : nullptr),
        logits(reinterpret_cast<float*>(static_cast<char*>(workspace) + s.logits_at())),
        capped(reinterpret_cast<float*>(static_cast<char*>(workspace) + s.capped_at())) {}

  void check_labels() const {
    for (int64_t t = 0; t < sizes.tokens; ++t)
      if (labels[t] != ignored && (labels[t] < 0 || labels[t] >= sizes.vocabulary))
        throw Error{ENG_INVALID, "label " + std::to_string(labels[t]) + " of token " + std::to_string(t) +
                                     " is neither -100 nor below the vocabulary of " +
                                     std::to_string(sizes.vocabulary)};
  }
  // Tokens first .. first + count - 1, whose logits are in `logits`. With `gradient` their gradients replace them.
  void run(int64_t first, int64_t count, const RowGradient* gradient) const {
    const int64_t v = sizes.vocabulary;
    parallel_tasks(sizes.threads, count, [&](unsigned thread, int64_t task) {
      float *const row = logits + task * v, *const kept = capped + thread * v;
      const int32_t label = labels[first + task];
      const int64_t t = first + task;
      if (label != ignored) {
        RowGradient mine = gradient ? *gradient : RowGradient{};
        if (weights) mine.scale *= weights[t], mine.z *= weights[t];
        double lse = 0.0;
        if (sizes.cap > 0) isa->cap_row(row, v, sizes.cap, row);
        if (sizes.cap > 0 && gradient) std::memcpy(kept, row, static_cast<size_t>(v) * sizeof(float));
        losses[t] = isa->row_loss(row, v, label, gradient ? &mine : nullptr, &lse);
        if (sizes.cap > 0 && gradient) isa->cap_row_grad(kept, v, sizes.cap, row);
        if (squares) squares[t] = lse * lse;
        if (weights) losses[t] *= static_cast<double>(weights[t]);
        if (weights && squares) squares[t] *= static_cast<double>(weights[t]);
        return;
      }
      losses[t] = 0.0;
      if (squares) squares[t] = 0.0;
      if (gradient) std::memset(row, 0, static_cast<size_t>(v) * sizeof(float));
    });
  }
  float total(const double* values) const {
    double sum = 0.0;
    for (int64_t t = 0; t < sizes.tokens; ++t) sum += values[t];
    return static_cast<float>(sum);
  }
};

void check_cap(const Call& c) {
  const double cap = c.real("softcap");
  if (!(cap > 0 && std::isfinite(cap))) throw Error{ENG_INVALID, "softcap must be above 0, and finite"};
}

template <bool capped>
struct CrossEntropy {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY : ENG_OP_CROSS_ENTROPY;
  const Device& device;
  Sizes sizes;

  static void check(const Call& c) {
    need_arguments(c, 3, 4, c.real_or("z_loss", 0.0) > 0 ? 2 : 1), check_common(c, 3, 1);
    if (capped) check_cap(c);
  }
  static uint64_t workspace(const Call& c) { return Sizes(c).bytes(); }
  CrossEntropy(const Call& c, void* self) : device(device_of(self)), sizes(c) {}

  void run(const Args& a) const {
    const Sizes& s = sizes;
    const Rows rows(device, s, a.in<int32_t>(2), a.in<float>(3), a.workspace);
    rows.check_labels();
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t n = std::min(s.chunk, s.tokens - first);
      Gemm(device, s.logits(n), s.threads)
          .run(s.x_at(a.in<void>(0), first), a.in<void>(1), nullptr, 0, rows.logits, a.workspace);
      rows.run(first, n, nullptr);
    }
    *a.out<float>(0) = rows.total(rows.losses);
    if (s.z_loss > 0) *a.out<float>(1) = rows.total(rows.squares);
  }
};

template <bool capped>
struct CrossEntropyGrad {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY_GRAD : ENG_OP_CROSS_ENTROPY_GRAD;
  const Device& device;
  Sizes sizes;

  static void check(const Call& c) {
    const bool with_dw = c.out.size() != 2 && c.integer_or("no_dw", 0) == 0;
    const size_t z = with_dw ? 3 : 2;
    need_arguments(c, 4, 6, c.real_or("z_loss", 0.0) > 0 ? z + 1 : z), check_common(c, 5, z);
    need_f32(c.in[3], "scalars"), need_same_type(c.in[0], c.out[1], "x and dx");
    if (capped) check_cap(c);
    if (with_dw) need_sums(c, c.in[0].dtype, {4}, {2});
    if (elements(c.in[3]) <= ENG_S_LOSS_SCALE) throw Error{ENG_INVALID, "scalars has too few elements"};
    need_size("elements of dx", elements(c.out[1]), elements(c.in[0]));
    if (with_dw) need_size("elements of dw", elements(c.out[2]), elements(c.in[1]));
    if (c.has(4)) need_size("elements of dw_acc", elements(c.in[4]), elements(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return Sizes(c).bytes(); }
  CrossEntropyGrad(const Call& c, void* self) : device(device_of(self)), sizes(c) {}

  void run(const Args& a) const {
    const Sizes& s = sizes;
    const Rows rows(device, s, a.in<int32_t>(2), a.in<float>(5), a.workspace);
    rows.check_labels();
    const void *x = a.in<void>(0), *w = a.in<void>(1), *acc = a.in<void>(4);
    const float* scalars = a.in<float>(3);
    char* const dx = a.out<char>(1);
    void* const dw = s.has_dw ? a.out<void>(2) : nullptr;
    s.pad(acc, dw);
    const float all = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE];
    const RowGradient gradient{all * static_cast<float>(s.weight), all * static_cast<float>(s.z_loss)};
    for (int64_t first = 0; first < s.tokens; first += s.chunk, acc = dw) {
      const int64_t n = std::min(s.chunk, s.tokens - first), at = first * s.width * stored_bytes(s.stored);
      Gemm(device, s.logits(n), s.threads).run(s.x_at(x, first), w, nullptr, 0, rows.logits, a.workspace);
      rows.run(first, n, &gradient);
      Gemm(device, s.dx(n), s.threads).run(rows.logits, w, nullptr, 0, dx + at, a.workspace);
      if (dw) Gemm(device, s.dw(n), s.threads).run(rows.logits, s.x_at(x, first), acc, s.width, dw, a.workspace);
    }
    if (s.tokens == 0 && dw)  // dw = acc, or zeros
      Gemm(device, s.dw(0), s.threads).run(rows.logits, x, acc, s.width, dw, a.workspace);
    *a.out<float>(0) = rows.total(rows.losses);
    if (s.z_loss > 0) *a.out<float>(s.has_dw ? 3 : 2) = rows.total(rows.squares);
  }
};

struct Softcap {
  static constexpr const char* op = ENG_OP_SOFTCAP;
  const Isa* isa;
  unsigned threads;
  int64_t n;
  float cap;

  static void check(const Call& c) {
    need_arguments(c, 1, 1, 1), need_f32(c.in[0], "x"), need_f32(c.out[0], "y"), check_cap(c);
    need_size("elements of y", elements(c.out[0]), elements(c.in[0]));
  }
  Softcap(const Call& c, void* self)
      : isa(device_of(self).isa),
        threads(c.parallel),
        n(elements(c.in[0])),
        cap(static_cast<float>(c.real("softcap"))) {}
  void run(const Args& a) const {
    constexpr int64_t piece = 16384;
    parallel_tasks(threads, (n + piece - 1) / piece, [&](unsigned, int64_t task) {
      const int64_t first = task * piece;
      isa->cap_row(a.in<float>(0) + first, std::min(piece, n - first), cap, a.out<float>(0) + first);
    });
  }
};

// `dy`: the input or output (B, T).
void check_logprob(const Call& c, const eng_desc& dy) {
  need_one_type(c, 3, 2), need_f32(dy, "log-probabilities and their gradient");
  need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
  need_size("labels", elements(c.in[2]), rows(c.in[0]));
  need_size("log-probabilities", elements(dy), rows(c.in[0]));
  need_vocabulary(c);
}

struct LabelLogprob {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB;
  const Device& device;
  Sizes sizes;

  static void check(const Call& c) { need_arguments(c, 3, 3, 1), check_logprob(c, c.out[0]); }
  static uint64_t workspace(const Call& c) { return Sizes(c).bytes(); }
  LabelLogprob(const Call& c, void* self) : device(device_of(self)), sizes(c) {}

  void run(const Args& a) const {
    const Sizes& s = sizes;
    const Rows rows(device, s, a.in<int32_t>(2), nullptr, a.workspace);
    rows.check_labels();
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t n = std::min(s.chunk, s.tokens - first);
      Gemm(device, s.logits(n), s.threads)
          .run(s.x_at(a.in<void>(0), first), a.in<void>(1), nullptr, 0, rows.logits, a.workspace);
      rows.run(first, n, nullptr);
    }
    for (int64_t t = 0; t < s.tokens; ++t) a.out<float>(0)[t] = static_cast<float>(0.0 - rows.losses[t]);
  }
};

// A loss of weight -dy[t] for each token.
struct LabelLogprobGrad {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB_GRAD;
  const Device& device;
  Sizes sizes;

  static void check(const Call& c) {
    const bool with_dw = c.integer_or("no_dw", 0) == 0;
    need_arguments(c, 4, 5, with_dw ? 2 : 1), check_logprob(c, c.in[3]);
    need_same_type(c.in[0], c.out[0], "x and dx");
    if (with_dw) need_sums(c, c.in[0].dtype, {4}, {1});
    need_size("elements of dx", elements(c.out[0]), elements(c.in[0]));
    if (with_dw) need_size("elements of dw", elements(c.out[1]), elements(c.in[1]));
    if (c.has(4)) need_size("elements of dw_acc", elements(c.in[4]), elements(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return Sizes(c, 1).bytes(); }
  LabelLogprobGrad(const Call& c, void* self) : device(device_of(self)), sizes(c, 1) {}

  void run(const Args& a) const {
    const Sizes& s = sizes;
    const Rows rows(device, s, a.in<int32_t>(2), a.in<float>(3), a.workspace);
    rows.check_labels();
    const void *x = a.in<void>(0), *w = a.in<void>(1), *acc = a.in<void>(4);
    void* const dw = s.has_dw ? a.out<void>(1) : nullptr;
    s.pad(acc, dw);
    const RowGradient gradient{-1.0f, 0.0f};
    for (int64_t first = 0; first < s.tokens; first += s.chunk, acc = dw) {
      const int64_t n = std::min(s.chunk, s.tokens - first), at = first * s.width * stored_bytes(s.stored);
      Gemm(device, s.logits(n), s.threads).run(s.x_at(x, first), w, nullptr, 0, rows.logits, a.workspace);
      rows.run(first, n, &gradient);
      Gemm(device, s.dx(n), s.threads).run(rows.logits, w, nullptr, 0, a.out<char>(0) + at, a.workspace);
      if (dw) Gemm(device, s.dw(n), s.threads).run(rows.logits, s.x_at(x, first), acc, s.width, dw, a.workspace);
    }
    if (s.tokens == 0 && dw)  // dw = acc, or zeros
      Gemm(device, s.dw(0), s.threads).run(rows.logits, x, acc, s.width, dw, a.workspace);
  }
};

}  // namespace

const eng_kernel* const cross_entropy_kernels[] = {&kernel<CrossEntropy<false>>,
                                                   &kernel<CrossEntropyGrad<false>>,
                                                   &kernel<CrossEntropy<true>>,
                                                   &kernel<CrossEntropyGrad<true>>,
                                                   &kernel<Softcap>,
                                                   &kernel<LabelLogprob>,
                                                   &kernel<LabelLogprobGrad>};
const uint32_t cross_entropy_kernel_count = std::size(cross_entropy_kernels);

}  // namespace cpu
