// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy, also of capped logits, or linear and the log-probability of the label, in one op.
#include "cross_entropy.cuh"
#include "list.hpp"
#include "softcap.hpp"

namespace cuda {
namespace cross_entropy {

// `weights`: the input with loss weights; `z`: the output of the z loss.
void need_loss(const Call& c, size_t weights, size_t z, bool capped) {
  need_head(c), need_tensor(c.out[0], ENG_F32, 1, "loss");
  need_optional(c, weights, ENG_F32, rows(c.in[0]), "loss weights");
  if (c.real_or("z_loss", 0) > 0) need_tensor(c.out[z], ENG_F32, 1, "z");
  if (capped) need_cap(c);
}
template <bool capped>
struct CrossEntropy : Chunks<1> {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY : ENG_OP_CROSS_ENTROPY;
  static void check(const Call& c) {
    const size_t outputs = c.real_or("z_loss", 0) > 0 ? 2 : 1;
    need_counts(c, 3, 4, outputs, outputs), need_loss(c, 3, 1, capped);
  }
  CrossEntropy(const Call& c, void* device) : Chunks(c, device, false) {}
  void run(const Args& a, cudaStream_t stream) const {
    Asked asked{losses(a), squares(a)};
    asked.weights = a.in<float>(3);
    values(a, asked, stream), add_up(a, a.out<float>(1), stream);
  }
};

template <bool capped>
struct CrossEntropyGrad : Chunks<1> {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY_GRAD : ENG_OP_CROSS_ENTROPY_GRAD;
  static void check(const Call& c) {
    const bool has_dw = c.out.size() != 2 && c.integer_or("no_dw", 0) == 0;
    const size_t z = has_dw ? 3 : 2, outputs = c.real_or("z_loss", 0) > 0 ? z + 1 : z;
    need_counts(c, 4, 6, outputs, outputs), need_loss(c, 5, z, capped), need_scalars(c.in[3]),
        need_gradients(c, 1, has_dw);
  }
  CrossEntropyGrad(const Call& c, void* device) : Chunks(c, device, true) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    Asked asked{losses(a), squares(a)};
    asked.scalars = a.in<float>(3), asked.weights = a.in<float>(5);
    gradients(c, a, asked, stream), add_up(a, a.out<float>(sizes.has_dw ? 3 : 2), stream);
  }
};

struct LabelLogprob : Chunks<0> {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB;
  static void check(const Call& c) {
    need_counts(c, 3, 3, 1, 1), need_head(c);
    need_tensor(c.out[0], ENG_F32, rows(c.in[0]), "log-probabilities");
  }
  LabelLogprob(const Call& c, void* device) : Chunks(c, device, false) {}
  void run(const Args& a, cudaStream_t stream) const {
    Asked asked{a.out<float>(0)};
    asked.logprobs = true;
    values(a, asked, stream);
  }
};

struct LabelLogprobGrad : Chunks<0> {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB_GRAD;
  static void check(const Call& c) {
    const size_t outputs = c.integer_or("no_dw", 0) == 0 ? 2 : 1;
    need_counts(c, 4, 5, outputs, outputs), need_head(c), need_gradients(c, 0, outputs == 2);
    need_tensor(c.in[3], ENG_F32, rows(c.in[0]), "dy");
  }
  LabelLogprobGrad(const Call& c, void* device) : Chunks(c, device, true) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    Asked asked{};
    asked.dlogprobs = a.in<float>(3);
    gradients(c, a, asked, stream);
  }
};

}  // namespace cross_entropy

void add_cross_entropy(List& list) {
  using namespace cross_entropy;
  list.insert(list.end(), {&kernel<CrossEntropy<false>>, &kernel<CrossEntropyGrad<false>>, &kernel<CrossEntropy<true>>,
                           &kernel<CrossEntropyGrad<true>>, &kernel<LabelLogprob>, &kernel<LabelLogprobGrad>});
}

}  // namespace cuda
