// SPDX-License-Identifier: Apache-2.0
// The parts of a vocabulary that ranks divide (engine/ops_parallel.h) on the kernels of the cuda device.
#include "emulated.hpp"
#include "engine/ops_parallel.h"
#include "plugins/cuda/kernels/library.hpp"

using namespace cuda_test;

namespace vocabulary {
namespace {

constexpr int64_t width = 8;

double tolerance(int32_t type) {
  return type == ENG_F32 ? 5e-6 : type == ENG_BF16 ? 1.5e-2 : 3e-3;
}

// Rows first .. first + count - 1 of a table.
Tensor rows_of(const Tensor& table, int64_t first, int64_t count) {
  Tensor out(table.d.dtype, {count, table.d.dims[1]});
  for (int64_t k = 0; k < out.size(); ++k) out.put(k, table.at(first * table.d.dims[1] + k));
  return out;
}

// Members have unequal parts here: rows 0 .. cut - 1, and the rest.
struct Head {
  Tensor x, w, labels, weights, scalars{ENG_F32, {ENG_S_COUNT}};
  int64_t tokens, vocabulary, cut;
  double cap, z;
  Head(Random& random, int32_t type, int64_t n, int64_t v, int64_t c, double softcap, double z_loss)
      : x(random_normal(random, type, {1, n, width})),
        w(random_normal(random, type, {v, width})),
        labels(random_ints(random, {1, n}, 0, static_cast<int>(v) - 1)),
        weights(random_normal(random, ENG_F32, {1, n})),
        tokens(n),
        vocabulary(v),
        cut(c),
        cap(softcap),
        z(z_loss) {
    const int64_t odd[] = {-100, 0, c - 1, c, v - 1};  // none, and the first and last ids of the parts
    for (int64_t k = 0; k < 5; ++k) labels.put(k, static_cast<double>(odd[k]));
    scalars.put(ENG_S_INV_TOKENS, 0.25), scalars.put(ENG_S_LOSS_SCALE, 8);
  }
  int64_t first(int64_t member) const { return member ? cut : 0; }
  Tensor part(int64_t member) const { return rows_of(w, first(member), member ? vocabulary - cut : cut); }
  Use scores(int64_t member) const {
    return {ENG_OP_VOCABULARY_SCORES,
            {x, part(member), labels},
            {desc(ENG_F32, {2 * tokens})},
            {whole("first", first(member)), whole("whole", vocabulary), real("softcap", cap)}};
  }
  // Loss, lse and, with z, that of the scores of both.
  Use loss(const Tensor& both) const {
    const eng_desc one = desc(ENG_F32, {1}), lse = desc(ENG_F32, {1, tokens});
    Use use{ENG_OP_VOCABULARY_LOSS, {both, labels, weights}, {one, lse}, {whole("members", 2), real("z_loss", z)}};
    if (z > 0) use.out.push_back(one);
    return use;
  }
  Tensor wanted_scores() const {
    Tensor both(ENG_F32, {4 * tokens});
    for (const int64_t member : {0, 1}) {
      const Tensor own = scores(member).wanted()[0];
      for (int64_t k = 0; k < own.size(); ++k) both.put(member * own.size() + k, own.at(k));
    }
    return both;
  }
  Use gradient(int64_t member, const Tensor& lse, int32_t sums, const Tensor& acc, const Tensor& of_tokens) const {
    Use use = scores(member);
    use.op = ENG_OP_VOCABULARY_GRAD, use.out = {x.d, use.in[1].d}, use.out[1].dtype = sums;
    use.in.insert(use.in.end(), {lse, scalars, acc, of_tokens});
    use.attrs.insert(use.attrs.end(), {whole("no_dw", 0), real("weight", 0.75), real("z_loss", z)});
    if (acc.d.dtype) use.in_place = {{1, 5}};
    return use;
  }
};

}  // namespace

TEST_CASE("emulated cuda: scores, loss and gradients of parts of a vocabulary") {
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  for (const auto& [cap, z] : {std::pair(0.0, 0.0), {0.0, 0.25}, {2.5, 0.25}}) {
    if (type != ENG_F32 && cap == 0) continue;
    INFO("type " << type << ", cap " << cap << ", z " << z);
    Random random(31);
    Head head(random, type, 7, 67, 30, cap, z);
    const Tensor both = head.wanted_scores();
    check_close(head.loss(both), 1e-6);
    const Tensor lse = head.loss(both).wanted()[1];
    for (const int64_t member : {0, 1}) {
      INFO("member " << member);
      check_close(head.scores(member), 1e-5);
      const Tensor acc = random_normal(random, ENG_F32, {head.part(member).d.dims[0], width});
      check_close(head.gradient(member, lse, type, Tensor(), Tensor()), tolerance(type));
      check_close(head.gradient(member, lse, ENG_F32, acc, head.weights), tolerance(type));
      Use frozen = head.gradient(member, lse, type, Tensor(), head.weights);
      frozen.out.pop_back(), frozen.attrs.push_back(whole("no_dw", 1));
      frozen.attrs.erase(frozen.attrs.begin() + 3);
      check_close(frozen, tolerance(type));
      const Tensor dx = outputs(frozen)[0];
      for (int64_t h = 0; h < width; ++h) CHECK(dx.at(h) == 0);  // its label is -100
      frozen.attrs[0] = whole("first", member ? 29 : 1);         // planted: rows of other ids
      CHECK(error_of(outputs(frozen)[0], dx) > 2 * tolerance(type));
    }
    // An id that no member has: the loss is not a number.
    head.labels.put(2, 67);
    const Tensor scores = outputs(head.scores(0))[0];
    Tensor of_all(ENG_F32, {4 * head.tokens});
    for (int64_t k = 0; k < of_all.size(); ++k) of_all.put(k, scores.at(k % scores.size()));
    CHECK(std::isnan(outputs(head.loss(of_all))[0].at(0)));
  }
}

TEST_CASE("emulated cuda: parts of a vocabulary with products of a library, in chunks") {
  static Device device(device_file(), "cuda");
  if (device.info.settings[0] == 0) device.info.settings[0] = 1;
  device.info.settings[cuda::library::loss_chunk_setting] = 3;
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  Random random(32);
  const Head head(random, type, 7, 2101 + 1030, 1030, 0, 0.25);  // several rounds of a block, and one
  const Tensor lse = head.loss(head.wanted_scores()).wanted()[1];
  for (const int64_t member : {0, 1}) {
    INFO("type " << type << ", member " << member);
    Use scores = head.scores(member);
    scores.on = &device;
    check_close(scores, 1e-5);
    const Tensor acc = random_normal(random, ENG_F32, {head.part(member).d.dims[0], width});
    Use gradient = head.gradient(member, lse, ENG_F32, acc, head.weights);
    gradient.on = &device;
    check_close(gradient, 2 * tolerance(type));
  }
}

TEST_CASE("emulated cuda: the loss of parts of a vocabulary, of more tokens than are summed at once") {
  Random random(35);
  constexpr int64_t members = 3, n = 1100;
  const eng_desc one = desc(ENG_F32, {1}), lse = desc(ENG_F32, {1, n});
  check_close({ENG_OP_VOCABULARY_LOSS,
               {random_normal(random, ENG_F32, {members * 2 * n}), random_ints(random, {1, n}, 0, 4)},
               {one, lse, one},
               {whole("members", members), real("z_loss", 0.5)}},
              1e-5);
}

TEST_CASE("emulated cuda: the embedding of a part of a vocabulary") {
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  Random random(33);
  for (const int64_t columns : {1, 12, 40}) {
    INFO("type " << type << ", " << columns << " columns");
    const Tensor table = random_normal(random, type, {9, columns}), dy = random_normal(random, type, {2, 150, columns});
    const Tensor tokens = random_ints(random, {2, 150}, 0, 22);
    for (const int64_t first : {0, 5, 14}) {
      const std::vector<eng_attr> attrs = {whole("first", first)}, grad = {whole("first", first), whole("rows", 9)};
      check_exact({ENG_OP_EMBEDDING_PART, {tokens, table}, {dy.d}, attrs});
      for (const int32_t sums : {type, int32_t{ENG_F32}}) {
        const Tensor acc = random_normal(random, sums, {9, columns});
        check_close({ENG_OP_EMBEDDING_PART_GRAD, {tokens, dy}, {acc.d}, grad}, 1e-6);
        check_close({ENG_OP_EMBEDDING_PART_GRAD, {tokens, dy, acc}, {acc.d}, grad, {{0, 2}}}, 1e-6);
      }
    }
  }
}

TEST_CASE("emulated cuda: what is no part of a vocabulary is refused") {
  Random random(34);
  Head head(random, ENG_F32, 5, 8, 4, 0, 0);
  Use scores = head.scores(1);
  scores.attrs[1] = whole("whole", 7);
  CHECK_THROWS_WITH(outputs(scores), Catch::Contains("the rows of w must lie in 0 .. whole - 1"));
  Use lookup{ENG_OP_EMBEDDING_PART, {head.labels, head.w}, {head.x.d}, {whole("first", -1)}};
  CHECK_THROWS_WITH(outputs(lookup), Catch::Contains("first must not be negative"));
}

}  // namespace vocabulary
