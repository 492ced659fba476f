// SPDX-License-Identifier: Apache-2.0
#include "emulated.hpp"

using namespace cuda_test;

namespace {

struct Types {
  int32_t stream, type, sums;
};
const Types all_types[] = {{ENG_F32, ENG_F32, ENG_F32},
                           {ENG_BF16, ENG_BF16, ENG_F32},
                           {ENG_F32, ENG_BF16, ENG_BF16},
                           {ENG_F16, ENG_F16, ENG_F32}};

// A unit of the last place of the widest rounding that an output may be apart.
double tolerance(const Types& t) {
  return t.type == ENG_F32 ? 2e-6 : t.type == ENG_BF16 ? 1e-2 : 2e-3;
}

}  // namespace

namespace {

void check_rms_norm(Random& random, const Types& t, const Dims& dims) {
  const auto stream = [&] { return random_normal(random, t.stream, dims); };
  const Dims lead(dims.begin(), dims.end() - 1), last = {dims.back()};
  const Tensor x = stream(), residual = stream(), w = random_normal(random, t.type, last), none;
  const eng_desc y = desc(t.type, dims), rstd = desc(ENG_F32, lead);
  const std::vector<eng_attr> eps = {real("eps", 1e-5)};
  check_close({ENG_OP_RMS_NORM, {x, w, none}, {y, rstd}, eps}, tolerance(t));
  check_close({ENG_OP_RMS_NORM, {x, w, residual}, {y, rstd, x.d}, eps, {{2, 0}}}, tolerance(t));
  const Tensor stats = reference().run(ENG_OP_RMS_NORM, {x, w, none}, {y, rstd}, eps)[1];
  const Tensor dy = random_normal(random, t.type, dims), ds = stream(), acc = random_normal(random, t.sums, last);
  check_close({ENG_OP_RMS_NORM_GRAD, {dy, x, w, stats}, {x.d, acc.d}}, tolerance(t));
  check_close({ENG_OP_RMS_NORM_GRAD, {dy, x, w, stats, ds, acc}, {x.d, acc.d}, {}, {{0, 4}, {1, 5}}}, tolerance(t));
}

void check_layer_norm(Random& random, const Types& t, const Dims& dims) {
  const Dims last = {dims.back()};
  Dims pairs(dims.begin(), dims.end() - 1);
  pairs.push_back(2);
  const auto stream = [&] { return random_normal(random, t.stream, dims); };
  const Tensor x = stream(), residual = stream(), w = random_normal(random, t.type, last),
               bias = random_normal(random, t.type, last), none;
  const eng_desc y = desc(t.type, dims), stats = desc(ENG_F32, pairs);
  const std::vector<eng_attr> eps = {real("eps", 1e-5)}, with_bias = {whole("bias", 1)};
  check_close({ENG_OP_LAYER_NORM, {x, w, bias, none}, {y, stats}, eps}, tolerance(t));
  check_close({ENG_OP_LAYER_NORM, {x, w, bias, residual}, {y, stats, x.d}, eps, {{2, 3}}}, tolerance(t));
  check_close({ENG_OP_LAYER_NORM, {x, none, none, none}, {y, stats}, eps}, tolerance(t));
  const Tensor s = reference().run(ENG_OP_LAYER_NORM, {x, w, bias, none}, {y, stats}, eps)[1];
  const Tensor dy = stream(), ds = stream(), dw = random_normal(random, t.sums, last),
               db = random_normal(random, t.sums, last);
  const auto check = [&](const Use& use) { check_close(use, tolerance(t)); };
  check({ENG_OP_LAYER_NORM_GRAD, {dy, x, w, s}, {x.d, dw.d, db.d}, with_bias});
  check({ENG_OP_LAYER_NORM_GRAD, {dy, x, w, s, ds, dw, db}, {x.d, dw.d, db.d}, with_bias, {{0, 4}, {1, 5}, {2, 6}}});
  check({ENG_OP_LAYER_NORM_GRAD, {dy, x, w, s, none, dw}, {x.d, dw.d}, {whole("bias", 0)}});
  check({ENG_OP_LAYER_NORM_GRAD, {dy, x, none, s}, {x.d}, {whole("bias", 0)}});
}

}  // namespace

// Rows of 8, 16 or 32 lanes, or of several warps; of whole vectors, or not; more rows than a slice has.
TEST_CASE("emulated cuda: rms_norm and its gradient") {
  Random random(11);
  const Types t = GENERATE(from_range(std::begin(all_types), std::end(all_types)));
  check_rms_norm(random, t,
                 GENERATE(Dims{3, 5}, Dims{2, 3, 64}, Dims{40, 64}, Dims{20, 128}, Dims{34, 77}, Dims{2, 1030},
                          Dims{11, 1032}, Dims{300, 24}));
}

TEST_CASE("emulated cuda: layer_norm and its gradient") {
  Random random(12);
  const Types t = GENERATE(from_range(std::begin(all_types), std::end(all_types)));
  if (t.stream != t.type) return;  // the residual stream of 16-bit weights has their type
  check_layer_norm(random, t,
                   GENERATE(Dims{3, 5}, Dims{2, 3, 64}, Dims{20, 128}, Dims{34, 77}, Dims{11, 1032}, Dims{300, 24}));
}

TEST_CASE("emulated cuda: norms of long rows") {
  Random random(15);
  // Shared memory holds the next row too, or one row alone, with the sums or without, or nothing of it.
  const Types t = GENERATE(from_range(std::begin(all_types), std::begin(all_types) + types_of_long_cases().size()));
  const Dims dims = GENERATE(Dims{9, 6000}, Dims{2, 26000});
  check_rms_norm(random, t, dims);
  if (t.stream == t.type) check_layer_norm(random, t, dims);
}

TEST_CASE("emulated cuda: a norm of more rows than a block's warps take at once") {
  Random random(16);
  const Dims dims = GENERATE(Dims{4400, 68}, Dims{4400, 17});
  const Tensor x = random_normal(random, ENG_F32, dims), dy = random_normal(random, ENG_F32, dims),
               w = random_normal(random, ENG_F32, {dims.back()}), rstd = random_normal(random, ENG_F32, {dims[0]});
  check_close({ENG_OP_RMS_NORM_GRAD, {dy, x, w, rstd}, {x.d, w.d}}, 2e-6);
}

TEST_CASE("emulated cuda: embedding, positions and rope") {
  Random random(13);
  const Types t = GENERATE(from_range(std::begin(all_types), std::end(all_types)));
  if (t.stream != t.type) return;
  const Tensor table = random_normal(random, t.type, {11, 36}), tokens = random_ints(random, {2, 150}, 0, 9);
  const Tensor dy = random_normal(random, t.type, {2, 150, 36}), acc = random_normal(random, t.sums, {11, 36});
  check_close({ENG_OP_EMBEDDING, {tokens, table}, {dy.d}}, 0);
  check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {acc.d}, {whole("rows", 11)}}, tolerance(t));
  check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy, acc}, {acc.d}, {whole("rows", 11)}, {{0, 2}}}, tolerance(t));
  const Tensor x = random_normal(random, t.type, {2, 7, 36}), places = random_normal(random, t.type, {12, 36}),
               sums = random_normal(random, t.sums, {12, 36});
  const std::vector<eng_attr> offset = {whole("offset", 2)}, rows = {whole("rows", 12), whole("offset", 2)};
  check_exact({ENG_OP_POSITIONS, {x, places}, {x.d}, offset, {{0, 0}}});
  check_close({ENG_OP_POSITIONS_GRAD, {x}, {sums.d}, rows}, tolerance(t));
  check_close({ENG_OP_POSITIONS_GRAD, {x, sums}, {sums.d}, rows, {{0, 1}}}, tolerance(t));
  const Tensor angles = random_normal(random, ENG_F32, {9, 12});
  for (const int64_t inverse : {0, 1})
    check_close({ENG_OP_ROPE, {x, angles}, {x.d}, {whole("heads", 3), whole("inverse", inverse)}, {{0, 0}}},
                tolerance(t));
}

// Rows of whole vectors and others; of one block, and of several.
TEST_CASE("emulated cuda: embedding, positions and rope of many widths") {
  Random random(15);
  const Types t = GENERATE(from_range(std::begin(all_types), std::end(all_types)));
  if (t.stream != t.type) return;
  for (const int64_t columns : {1, 8, 48, 522, 2056}) {
    INFO("width " << columns);
    const Tensor table = random_normal(random, t.type, {7, columns}), tokens = random_ints(random, {2, 3}, 0, 6);
    const Tensor x = random_normal(random, t.type, {2, 3, columns}), acc = random_normal(random, t.sums, {7, columns});
    const std::vector<eng_attr> offset = {whole("offset", 1)}, rows = {whole("rows", 7), whole("offset", 1)};
    Tensor position = counters(0, 0, 0);
    position.as<int64_t>()[ENG_C_POSITION] = 2;
    check_exact({ENG_OP_EMBEDDING, {tokens, table}, {x.d}});
    check_close({ENG_OP_EMBEDDING_GRAD, {tokens, x, acc}, {acc.d}, {whole("rows", 7)}, {{0, 2}}}, tolerance(t));
    check_exact({ENG_OP_POSITIONS, {x, table}, {x.d}, offset});
    check_exact({ENG_OP_POSITIONS, {x, table, position}, {x.d}, offset, {{0, 0}}});
    check_close({ENG_OP_POSITIONS_GRAD, {x, acc}, {acc.d}, rows, {{0, 1}}}, tolerance(t));
  }
  for (const auto& [heads, size] : {std::pair{1, 2}, {5, 6}, {43, 12}, {3, 16}, {2, 24}, {66, 32}}) {
    INFO(heads << " heads of " << size);
    const Tensor x = random_normal(random, t.type, {2, 3, int64_t{heads} * size}),
                 angles = random_normal(random, ENG_F32, {9, size}), at = random_ints(random, {2, 3}, 0, 8);
    Tensor position = counters(0, 0, 0);
    position.as<int64_t>()[ENG_C_POSITION] = 6;
    const std::vector<eng_attr> attrs = {whole("heads", heads), whole("inverse", heads % 2)};
    check_close({ENG_OP_ROPE, {x, angles}, {x.d}, attrs}, tolerance(t));
    check_close({ENG_OP_ROPE, {x, angles, at}, {x.d}, attrs, {{0, 0}}}, tolerance(t));
    check_close({ENG_OP_ROPE_STEP, {x, angles, position}, {x.d}, attrs, {{0, 0}}}, tolerance(t));
  }
}

// Several steps of a block; token 3 is everywhere, 2 and 5 are rare, 4 never occurs.
TEST_CASE("emulated cuda: gradient of an embedding of many tokens") {
  Random random(16);
  const Types t = GENERATE(from_range(std::begin(all_types), std::end(all_types)));
  if (t.stream != t.type) return;
  Tensor tokens(ENG_I32, {2, 1100});
  for (int64_t i = 0; i < tokens.size(); ++i) tokens.put(i, i % 3 ? 3 : double(i % 2));
  for (const int64_t i : {0, 255, 256, 1023, 1024, 2047, 2199}) tokens.put(i, i % 2 ? 5 : 2);
  for (const int64_t columns : {3, 16}) {
    const Tensor dy = random_normal(random, t.type, {2, 1100, columns}),
                 acc = random_normal(random, t.sums, {6, columns});
    check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {acc.d}, {whole("rows", 6)}}, tolerance(t));
    check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy, acc}, {acc.d}, {whole("rows", 6)}, {{0, 2}}}, tolerance(t));
  }
}

TEST_CASE("emulated cuda: dropout and init") {
  Random random(14);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    const Tensor x = random_normal(random, type, {3, 7, 61});
    Tensor count = counters(5, 4, 3);
    count.as<int64_t>()[ENG_C_WORLD] = 4, count.as<int64_t>()[ENG_C_RANK] = 2;
    const std::vector<eng_attr> dropout = {real("p", 0.3), whole("seed", 77), whole("stream", 2)};
    check_exact({ENG_OP_DROPOUT, {x, count}, {x.d}, dropout, {{0, 0}}});
    for (const Dims& dims : {Dims{5}, Dims{2, 5, 16}, Dims{4, 64}, Dims{2, 3, 192}, Dims{3, 3072}}) {
      const Tensor y = random_normal(random, type, dims);
      check_exact({ENG_OP_DROPOUT, {y, count}, {y.d}, dropout});
      check_exact({ENG_OP_DROPOUT, {y, count}, {y.d}, dropout, {{0, 0}}});
    }
    const std::vector<eng_attr> where = {whole("seed", 1337), whole("stream", 5), whole("first", 13)};
    const auto with = [&](std::vector<eng_attr> more) {
      more.insert(more.end(), where.begin(), where.end());
      return more;
    };
    check_exact({ENG_OP_INIT_CONSTANT, {}, {x.d}, with({real("value", 0.3)})});
    check_exact({ENG_OP_INIT_UNIFORM, {}, {x.d}, with({real("low", -0.2), real("high", 0.7)})});
    check_close({ENG_OP_INIT_NORMAL, {}, {x.d}, with({real("mean", 0.1), real("std", 0.02)})}, 1e-6);
  }
}
