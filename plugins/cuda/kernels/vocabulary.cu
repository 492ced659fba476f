// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of a vocabulary whose rows ranks divide: the scores of a rank's rows, the loss of all, and the
// gradients.
#include "cross_entropy.cuh"
#include "engine/ops_parallel.h"
#include "list.hpp"
#include "softcap.hpp"

namespace cuda {
namespace vocabulary {

using namespace cross_entropy;

// The scores of the rows of w, or their gradients.
template <bool gradient>
struct Part : Chunks<0, true, 5> {
  static constexpr const char* op = gradient ? ENG_OP_VOCABULARY_GRAD : ENG_OP_VOCABULARY_SCORES;
  Asked asked;
  static void check(const Call& c) {
    const size_t outputs = gradient && c.integer_or("no_dw", 0) == 0 ? 2 : 1;
    need_counts(c, gradient ? 5 : 3, gradient ? 7 : 3, outputs, outputs), need_head(c);
    const int64_t tokens = rows(c.in[0]), first = c.integer("first");
    need(first >= 0 && first <= c.integer("whole") - rows(c.in[1]), "the rows of w must lie in 0 .. whole - 1");
    if (c.real_or("softcap", 0) != 0) need_cap(c);
    if (!gradient) return need_tensor(c.out[0], ENG_F32, 2 * tokens, "scores");
    need_tensor(c.in[3], ENG_F32, tokens, "lse"), need_scalars(c.in[4]), need_gradients(c, 0, outputs == 2, 5);
    need_optional(c, 6, ENG_F32, tokens, "loss weights");
  }
  Part(const Call& c, void* device) : Chunks(c, device, gradient) {
    asked.own = c.integer("first"), asked.whole = c.integer("whole");
  }
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    Asked all = asked;
    if constexpr (gradient) {
      all.lse = a.in<float>(3), all.scalars = a.in<float>(4), all.weights = a.in<float>(6);
      gradients(c, a, all, stream);
    } else {
      all.losses = a.out<float>(0), all.squares = all.losses + sizes.tokens;
      values(a, all, stream);
    }
  }
};

// lse of each token from the scores of all members, and (2, tokens) losses and squares of lse, weighted.
struct LossOf {
  const float* scores;
  const int32_t* labels;
  const float* weights;
  float *lses, *sums;
  int64_t members, tokens;
  static constexpr int width = 1;
  template <int W>
  __device__ void at(int64_t t) const {
    const float *const first = scores + t, *const end = first + 2 * members * tokens;
    float top = -INFINITY, sum = 0, of_label = 0;
    for (const float* s = first; s < end; s += 2 * tokens) top = fmaxf(top, *s);
    for (const float* s = first; s < end; s += 2 * tokens) sum += expf(*s - top), of_label += s[tokens];
    const bool counts = labels[t] != ignored;
    const float lse = counts ? top + logf(sum) : 0.0f, weight = weights ? weights[t] : 1.0f;
    lses[t] = lse, sums[t] = counts ? weight * (lse - of_label) : 0.0f, sums[tokens + t] = weight * lse * lse;
  }
};

struct Loss {
  static constexpr const char* op = ENG_OP_VOCABULARY_LOSS;
  int64_t members, tokens;
  explicit Loss(const Call& c) : members(c.integer("members")), tokens(elements(c.in[1])) {}
  static void check(const Call& c) {
    const size_t outputs = c.real_or("z_loss", 0) > 0 ? 3 : 2;
    need_counts(c, 2, 3, outputs, outputs), need_type(c.in[1], ENG_I32, "labels");
    const int64_t members = c.integer("members"), tokens = elements(c.in[1]);
    need(members > 0, "members must be at least 1"), need_tensor(c.in[0], ENG_F32, members * 2 * tokens, "scores");
    need_optional(c, 2, ENG_F32, tokens, "loss weights"), need_tensor(c.out[1], ENG_F32, tokens, "lse");
    for (size_t k = 0; k < outputs; k += 2) need_tensor(c.out[k], ENG_F32, 1, k ? "z" : "loss");
  }
  static uint64_t workspace(const Call& c) { return 2 * sizeof(float) * static_cast<uint64_t>(elements(c.in[1])); }
  void run(const Args& a, cudaStream_t stream) const {
    float* const sums = a.scratch<float>();
    launch_each(tokens, stream,
                LossOf{a.in<float>(0), a.in<int32_t>(1), a.in<float>(2), a.out<float>(1), sums, members, tokens});
    launch<total<float>>(1, lanes_block, sizeof(Lanes), stream, sums, tokens, a.out<float>(0));
    if (float* const z = a.out<float>(2))
      launch<total<float>>(1, lanes_block, sizeof(Lanes), stream, sums + tokens, tokens, z);
  }
};

}  // namespace vocabulary

void add_vocabulary(List& list) {
  list.insert(list.end(),
              {&kernel<vocabulary::Part<false>>, &kernel<vocabulary::Loss>, &kernel<vocabulary::Part<true>>});
}

}  // namespace cuda
