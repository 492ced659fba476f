// SPDX-License-Identifier: Apache-2.0
// Attention and positions in packed samples, whose documents know nothing of each other.
#include "packed.hpp"

namespace packed_on_cuda {

using namespace cuda_test;

namespace {

struct Sizes {
  int64_t batch, length, heads, kv, size;
};
struct Case {
  Use forward, backward;
};

Case case_of(Random& random, int32_t type, const Sizes& s, const Tensor& segments) {
  const std::vector<eng_attr> attrs = {whole("heads", s.heads), whole("kv_heads", s.kv),
                                       real("scale", 1 / std::sqrt(double(s.size)))};
  const Dims wide = {s.batch, s.length, s.heads * s.size}, narrow = {s.batch, s.length, s.kv * s.size};
  const Tensor q = random_normal(random, type, wide, 2), k = random_normal(random, type, narrow, 2),
               v = random_normal(random, type, narrow), grad = random_normal(random, type, wide);
  const Use forward = {
      ENG_OP_ATTENTION, {q, k, v, segments}, {q.d, desc(ENG_F32, {s.batch, s.heads, s.length})}, attrs};
  const Device::Outputs o = forward.wanted();
  return {forward, {ENG_OP_ATTENTION_GRAD, {grad, q, k, v, o[0], o[1], segments}, {q.d, k.d, v.d}, attrs}};
}
double apart(int32_t type) {
  return type == ENG_F32 ? 3e-6 : type == ENG_BF16 ? 5e-3 : 7e-4;
}
void check(Random& random, int32_t type, const Sizes& s, const Packed& packed) {
  INFO("(" << s.batch << ", " << s.length << "), " << s.heads << " heads of " << s.size << ", " << s.kv << " for keys, "
           << (type == ENG_F32    ? "f32"
               : type == ENG_BF16 ? "bf16"
                                  : "f16"));
  const Case c = case_of(random, type, s, packed.segments);
  check_close(c.forward, apart(type));
  check_close(c.backward, 2 * apart(type));
}
Use without_last(Use use) {
  use.in.pop_back();
  return use;
}

}  // namespace

TEST_CASE("emulated cuda: attention of packed samples") {
  Random random(21);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    check(random, type, {1, 1, 1, 1, 16}, pack({{1}}));
    check(random, type, {2, 70, 2, 1, 16}, pack({{1, 1, 62, 5, 1}, {33, 37}}));
  }
  // Heads of 20 elements go to plain threads.
  check(random, ENG_BF16, {1, 33, 2, 2, 20}, pack({{7, 1, 25}}));
  check(random, ENG_BF16, {1, 131, 1, 1, 64}, pack({{63, 1, 2, 65}}));
}

TEST_CASE("emulated cuda: attention of packed samples, odd lengths and shared heads", "[.slow]") {
  Random random(22);
  for (const int64_t length : {9, 63, 64, 65, 130, 200})
    for (const int64_t group : {1, 2, 4})
      for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
        if (type == ENG_F32 && length > 70) continue;
        const int64_t batch = length < 70 ? 2 : 1;
        check(random, type, {batch, length, group == 1 ? 2 : group, group == 1 ? 2 : 1, 32},
              pack_some(random, batch, length));
      }
}

TEST_CASE("emulated cuda: attention of packed samples, heads of all sizes", "[.slow]") {
  Random random(23);
  for (const int64_t size : {16, 48, 64, 80, 96, 128, 192, 256})
    for (const int32_t type : {ENG_BF16, ENG_F16}) {
      const int64_t length = type == ENG_BF16 ? 141 : 67;
      check(random, type, {1, length, 2, 1, size}, pack_some(random, 1, length));
    }
}

TEST_CASE("emulated cuda: attention of a packed sample of one document has the bits of attention", "[own]") {
  Random random(24);
  for (const int32_t type : {ENG_F32, ENG_BF16}) {
    const Case c = case_of(random, type, {1, 75, 2, 1, 32}, pack_one(1, 75).segments);
    check_as_plain(c.forward, without_last(c.forward));
    check_as_plain(c.backward, without_last(c.backward));
  }
}

// A tile that was read would bring NaN, for 0 times NaN is NaN: tiles of 128 rows lie in one document each.
TEST_CASE("emulated cuda: tiles of other documents are skipped by attention of packed samples") {
  for (const int64_t lost : {0, 1}) {
    Random random(25);
    const Sizes s{1, 256, 1, 1, 32};
    Case c = case_of(random, ENG_BF16, s, pack({{128, 128}}).segments);
    const auto lose = [&](Use& use, size_t inputs) {
      for (size_t k = 0; k < inputs; ++k) {
        const int64_t half = use.in[k].size() / 2;
        for (int64_t i = lost * half; i < (lost + 1) * half; ++i) use.in[k].put(i, std::nan(""));
      }
    };
    lose(c.forward, 3), lose(c.backward, 6);
    for (const Use& use : {c.forward, c.backward})
      for (const Tensor& got : outputs(use)) {
        const int64_t half = got.size() / 2;
        int64_t nans = 0;
        for (int64_t i = 0; i < half; ++i) nans += std::isnan(got.at((1 - lost) * half + i));
        INFO(use.op << ", without document " << lost);
        CHECK(nans == 0);
      }
  }
}

TEST_CASE("emulated cuda: where documents begin and end in long samples") {
  Random random(26);
  // One head of 8 elements: with keys of 0, a query's output is the mean of its document so far.
  const int64_t length = 700;
  const Packed packed = pack({{1, 299, 1, 1, 388, 10}});
  Tensor q(ENG_BF16, {1, length, 8}), v(ENG_BF16, {1, length, 8});
  for (int64_t i = 0; i < v.size(); ++i) v.put(i, packed.positions.at(i / 8) == 0 ? 64 : 0);
  const Use use = {ENG_OP_ATTENTION,
                   {q, q, v, packed.segments},
                   {q.d, desc(ENG_F32, {1, 1, length})},
                   {whole("heads", 1), whole("kv_heads", 1), real("scale", 1)}};
  const Device::Outputs got = outputs(use);
  double worst = 0;
  for (int64_t t = 0; t < length; ++t) {
    const double seen = packed.positions.at(t) + 1;
    worst = std::max({worst, std::fabs(got[0].at(t * 8) * seen / 64 - 1), std::fabs(got[1].at(t) - std::log(seen))});
  }
  CHECK(worst < 5e-3);
}

TEST_CASE("emulated cuda: embedding of positions and rope in packed samples") {
  Random random(27);
  const int64_t length = 150, columns = GENERATE(36, 48);
  const Packed packed = pack({{1, 60, 1, 88}, {75, 75}});
  const std::vector<eng_attr> offset = {whole("offset", 2)}, rows = {whole("rows", 153), whole("offset", 2)};
  for (const auto& [type, sums] : {std::pair{ENG_F32, ENG_F32}, {ENG_BF16, ENG_F32}, {ENG_F16, ENG_F16}}) {
    const double most = type == ENG_F32 ? 2e-6 : type == ENG_BF16 ? 1e-2 : 2e-3;
    const Tensor x = random_normal(random, type, {2, length, columns}), none,
                 places = random_normal(random, type, {153, columns}),
                 acc = random_normal(random, sums, {153, columns});
    const Tensor angles = random_normal(random, ENG_F32, {length, columns / 3});
    const Tensor& at = packed.positions;
    const Tensor counted = pack_one(2, length).positions;
    const Use positions = {ENG_OP_POSITIONS, {x, places, none, at}, {x.d}, offset, {{0, 0}}};
    check_exact(positions);
    check_close({ENG_OP_POSITIONS_GRAD, {x, none, at}, {acc.d}, rows}, most);
    check_close({ENG_OP_POSITIONS_GRAD, {x, acc, at}, {acc.d}, rows, {{0, 1}}}, most);
    check_as_plain({ENG_OP_POSITIONS, {x, places, none, counted}, {x.d}, offset},
                   {ENG_OP_POSITIONS, {x, places}, {x.d}, offset});
    check_as_plain({ENG_OP_POSITIONS_GRAD, {x, none, counted}, {acc.d}, rows},
                   {ENG_OP_POSITIONS_GRAD, {x}, {acc.d}, rows});
    for (const int64_t inverse : {0, 1}) {
      const std::vector<eng_attr> attrs = {whole("heads", 3), whole("inverse", inverse)};
      check_close({ENG_OP_ROPE, {x, angles, at}, {x.d}, attrs, {{0, 0}}}, most);
      check_as_plain({ENG_OP_ROPE, {x, angles, counted}, {x.d}, attrs}, {ENG_OP_ROPE, {x, angles}, {x.d}, attrs});
    }
  }
}

TEST_CASE("emulated cuda: segments and positions of another type or size are refused") {
  Random random(28);
  Case c = case_of(random, ENG_F32, {1, 6, 1, 1, 16}, pack_one(1, 6).segments);
  c.forward.in[3] = Tensor(ENG_I64, {1, 6}), c.backward.in[6] = Tensor(ENG_I32, {1, 7});
  CHECK_THROWS_WITH(outputs(c.forward), Catch::Contains("segments has another type: i64 (1, 6)"));
  CHECK_THROWS_WITH(outputs(c.backward), Catch::Contains("segments must have 6 elements: i32 (1, 7)"));
  const Tensor x(ENG_F32, {1, 6, 4}), table(ENG_F32, {6, 4});
  const Use rope = {ENG_OP_ROPE, {x, table, Tensor(ENG_F32, {1, 6})}, {x.d}, {whole("heads", 1), whole("inverse", 0)}};
  CHECK_THROWS_WITH(outputs(rope), Catch::Contains("positions has another type"));
}

}  // namespace packed_on_cuda
