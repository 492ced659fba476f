// SPDX-License-Identifier: Apache-2.0
// Embedding and cross-entropy of the parts of a vocabulary: together they are those of the whole, and the device cpu
// computes what the reference does.
#include "engine/ops_parallel.h"
#include "engine/ops_softcap.h"
#include "fast_half.hpp"
#include "gradient_case.hpp"

using namespace kernels_test;
using gradients::Tensors;

namespace vocabulary {
namespace {

eng_attr whole(const char* key, int64_t value) {
  return {key, value, 0};
}

// Rows first .. first + count - 1 of a table.
Tensor rows_of(const Tensor& table, int64_t first, int64_t count) {
  const int64_t h = table.d.dims[1];
  Tensor out(table.d.dtype, {count, h});
  for (int64_t k = 0; k < count * h; ++k) out.put(k, table.at(first * h + k));
  return out;
}

struct Head {
  Tensor x, w, labels, weights, scalars;
  int64_t tokens, members;
  double z_loss, weight = 0.75, cap = 0;
  Head(Random& random, int32_t dtype, int64_t n, int64_t v, int64_t h, int64_t parts, double z)
      : x(random_normal(random, dtype, {1, n, h})),
        w(random_normal(random, dtype, {v, h})),
        labels(random_ints(random, {1, n}, 0, int(v) - 1)),
        weights(random_normal(random, dtype == ENG_F64 ? ENG_F64 : ENG_F32, {1, n})),
        scalars(dtype == ENG_F64 ? ENG_F64 : ENG_F32, {ENG_S_COUNT}),
        tokens(n),
        members(parts),
        z_loss(z) {
    labels.put(n / 2, -100);
    scalars.put(ENG_S_INV_TOKENS, 0.25), scalars.put(ENG_S_LOSS_SCALE, 8.0);
  }
  int32_t wide() const { return weights.d.dtype; }
  int64_t rows() const { return w.d.dims[0] / members; }
  Tensor part(int64_t r) const { return rows_of(w, r * rows(), rows()); }
  std::vector<eng_attr> own(int64_t r) const {
    return {whole("first", r * rows()), whole("whole", w.d.dims[0]), real("softcap", cap)};
  }
  std::vector<eng_attr> own_grad(int64_t r) const {
    std::vector<eng_attr> out = own(r);
    return out.insert(out.end(), {real("weight", weight), real("z_loss", z_loss)}), out;
  }
  // Loss, lse, z of all parts.
  Tensors loss(const Device& device) const {
    Tensor all(wide(), {members * 2 * tokens});
    for (int64_t r = 0; r < members; ++r) {
      const Tensor scores =
          device.run(ENG_OP_VOCABULARY_SCORES, {x, part(r), labels}, {desc(wide(), {2 * tokens})}, own(r))[0];
      for (int64_t k = 0; k < 2 * tokens; ++k) all.put(r * 2 * tokens + k, scores.at(k));
    }
    return device.run(ENG_OP_VOCABULARY_LOSS, {all, labels, weights},
                      {desc(wide(), {1}), desc(wide(), {1, tokens}), desc(wide(), {1})},
                      {whole("members", members), real("z_loss", z_loss)});
  }
  // dx, which is the sum of the parts, and dw, which is all of them.
  Tensors gradient(const Device& device, const Tensor& lse) const {
    Tensors out = {Tensor(wide(), {1, tokens, x.d.dims[2]}), Tensor(wide(), {w.d.dims[0], w.d.dims[1]})};
    for (int64_t r = 0; r < members; ++r) {
      const Tensor mine = part(r);
      const Tensors made = device.run(ENG_OP_VOCABULARY_GRAD, {x, mine, labels, lse, scalars, Tensor(), weights},
                                      {x.d, mine.d}, own_grad(r));
      for (int64_t k = 0; k < elements(x.d); ++k) out[0].put(k, out[0].at(k) + made[0].at(k));
      for (int64_t k = 0; k < elements(mine.d); ++k) out[1].put(r * elements(mine.d) + k, made[1].at(k));
    }
    return out;
  }
};

}  // namespace

TEST_CASE("the loss of the parts of a vocabulary is that of the whole, and so are its gradients") {
  for (const auto& [members, cap] : {std::pair<int64_t, double>{1, 0}, {2, 0}, {2, 1.5}, {4, 0}, {4, 2.5}}) {
    INFO(members << " members, cap " << cap);
    Random random(11);
    Head head(random, ENG_F64, 6, 12, 5, members, 0.375);
    head.cap = cap;
    const eng_desc one = desc(ENG_F64, {1});
    std::vector<eng_attr> attrs = {real("weight", head.weight), real("z_loss", head.z_loss)};
    if (cap > 0) attrs.push_back(real("softcap", cap));
    const Tensors want = reference().run(cap > 0 ? ENG_OP_CAPPED_CROSS_ENTROPY_GRAD : ENG_OP_CROSS_ENTROPY_GRAD,
                                         {head.x, head.w, head.labels, head.scalars, Tensor(), head.weights},
                                         {one, head.x.d, head.w.d, one}, attrs);
    const Tensors loss = head.loss(reference()), d = head.gradient(reference(), loss[1]);
    CHECK(error_of(loss[0], want[0]) < 1e-14);
    CHECK(error_of(loss[2], want[3]) < 1e-14);
    CHECK(error_of(d[0], want[1]) < 1e-13);
    CHECK(error_of(d[1], want[2]) < 1e-13);
    Tensor off = loss[1];  // planted: another lse
    off.put(0, off.at(0) + 1e-6);
    CHECK(error_of(head.gradient(reference(), off)[0], want[1]) > 1e-9);
  }
}

TEST_CASE("the device cpu computes parts of a vocabulary as the reference does") {
  for (const auto& [tokens, rows] : {std::pair<int64_t, int64_t>{3, 4}, {70, 258}, {300, 1000}})
    for (const int32_t dtype : {ENG_F32, ENG_BF16}) {
      INFO("tokens " << tokens << ", vocabulary " << rows << ", type " << dtype);
      Random random(7);
      Head head(random, dtype, tokens, rows, 24, 2, 0.01);
      head.cap = tokens == 70 ? 2.5 : 0;
      const auto close = [&](const Case& c) { dtype == ENG_F32 ? check_close(c, 1e-5) : check_half(c, 1e-4); };
      const Tensor lse = head.loss(reference())[1];
      for (const int64_t r : {0, 1}) {
        const Tensor mine = head.part(r), acc = random_normal(random, ENG_F32, {head.rows(), 24});
        close({ENG_OP_VOCABULARY_SCORES, {head.x, mine, head.labels}, {desc(ENG_F32, {2 * tokens})}, head.own(r), {}});
        std::vector<eng_attr> no_dw = head.own_grad(r);
        no_dw.push_back(whole("no_dw", 1));
        close({ENG_OP_VOCABULARY_GRAD, {head.x, mine, head.labels, lse, head.scalars}, {head.x.d}, no_dw, {}});
        if (dtype == ENG_F32)
          close({ENG_OP_VOCABULARY_GRAD,
                 {head.x, mine, head.labels, lse, head.scalars, acc, head.weights},
                 {head.x.d, acc.d},
                 head.own_grad(r),
                 {{1, 5}}});
        const int64_t n = head.rows();
        const std::vector<eng_attr> first = {whole("first", r * n)}, grad = {whole("first", r * n), whole("rows", n)};
        Tensor tokens_of = head.labels;
        tokens_of.put(tokens / 2, 1);
        close({ENG_OP_EMBEDDING_PART, {tokens_of, mine}, {head.x.d}, first, {}});
        close({ENG_OP_EMBEDDING_PART_GRAD, {tokens_of, head.x, acc}, {acc.d}, grad, {{0, 2}}});
        close({ENG_OP_EMBEDDING_PART_GRAD, {tokens_of, head.x}, {acc.d}, grad, {}});
      }
    }
}

TEST_CASE("a label that no part of a vocabulary has is refused") {
  Random random(3);
  Head head(random, ENG_F32, 4, 8, 3, 2, 0);
  head.labels.put(0, 8);
  const Device* const devices[] = {&reference(), fast_devices()[0].device.get()};
  for (const Device* device : devices)
    CHECK_THROWS_WITH(head.loss(*device), Catch::Contains("label 8 is neither -100 nor below the vocabulary of 8"));
}

}  // namespace vocabulary
