// SPDX-License-Identifier: Apache-2.0
// The reference device and the ops of the step: known answers, and direct emulations of what ops.h fixes.
#include <catch2/catch.hpp>
#include <set>

#include "engine/ops_attention.h"
#include "engine/ops_softcap.h"
#include "kernel_harness.hpp"
#include "plugins/common/philox.hpp"

using namespace kernels_test;

namespace {

Tensor counters(int64_t step, int64_t updates, int64_t micro) {
  return Tensor(ENG_I64, {ENG_C_COUNT}, {double(step), double(updates), double(micro)});
}

std::string failure(const std::string& op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
                    const std::vector<eng_attr>& attrs, eng_status status) {
  try {
    reference().run(op, in, out, attrs);
  } catch (const Failure& f) {
    CHECK(f.status == status);
    return f.what();
  }
  return "no failure";
}

}  // namespace

TEST_CASE("the reference device has a kernel for every op of the vocabulary") {
  const std::set<std::string> exact = {ENG_OP_BEGIN,  ENG_OP_GET_ROW,  ENG_OP_PUT_ROW, ENG_OP_SUM_SQUARES,
                                       ENG_OP_FINISH, ENG_OP_ADAMW,    ENG_OP_SGD,     ENG_OP_DROPOUT,
                                       ENG_OP_SCALE,  ENG_OP_POSITIONS};
  for (const char* op : {ENG_OP_LINEAR,
                         ENG_OP_LINEAR_RELU,
                         ENG_OP_EMBEDDING,
                         ENG_OP_RMS_NORM,
                         ENG_OP_ROPE,
                         ENG_OP_ATTENTION,
                         ENG_OP_ATTENTION_WINDOW,
                         ENG_OP_ATTENTION_WINDOW_GRAD,
                         ENG_OP_ATTENTION_WINDOW_STEP,
                         ENG_OP_GATED,
                         ENG_OP_ADD,
                         ENG_OP_CROSS_ENTROPY,
                         ENG_OP_CAPPED_CROSS_ENTROPY,
                         ENG_OP_CAPPED_CROSS_ENTROPY_GRAD,
                         ENG_OP_SOFTCAP,
                         ENG_OP_MATMUL,
                         ENG_OP_MATMUL_RELU_GRAD,
                         ENG_OP_SUM_ROWS,
                         ENG_OP_EMBEDDING_GRAD,
                         ENG_OP_RMS_NORM_GRAD,
                         ENG_OP_ATTENTION_GRAD,
                         ENG_OP_GATED_GRAD,
                         ENG_OP_CROSS_ENTROPY_GRAD,
                         ENG_OP_LABEL_LOGPROB,
                         ENG_OP_LABEL_LOGPROB_GRAD,
                         ENG_OP_LAYER_NORM,
                         ENG_OP_LAYER_NORM_GRAD,
                         ENG_OP_ACTIVATION,
                         ENG_OP_ACTIVATION_GRAD,
                         ENG_OP_SCALE,
                         ENG_OP_POSITIONS,
                         ENG_OP_POSITIONS_GRAD,
                         ENG_OP_DROPOUT,
                         ENG_OP_BEGIN,
                         ENG_OP_GET_ROW,
                         ENG_OP_PUT_ROW,
                         ENG_OP_SUM_SQUARES,
                         ENG_OP_FINISH,
                         ENG_OP_ADAMW,
                         ENG_OP_SGD,
                         ENG_OP_INIT_CONSTANT,
                         ENG_OP_INIT_NORMAL,
                         ENG_OP_INIT_UNIFORM}) {
    INFO(op);
    const eng_kernel* kernel = reference().find(op);
    REQUIRE(kernel);
    if (exact.count(op)) CHECK((kernel->flags & ENG_KERNEL_EXACT));
  }
  CHECK(!reference().find("eng.unheard_of/1"));
}

TEST_CASE("the reference device allocates, copies and describes itself") {
  const Device& d = reference();
  CHECK(d.info.parallel == 1);
  CHECK(d.info.dl_device_type == kDLCPU);
  CHECK(d.info.total_bytes > 0);
  Sink sink;
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{10000}}) {
    void* arena = nullptr;
    sink.check(d.device->alloc(d.self(), ENG_MEMORY_DEVICE, bytes, &arena, sink.get()));
    REQUIRE(arena);
    CHECK(reinterpret_cast<uintptr_t>(arena) % 4096 == 0);
    CHECK(std::count(static_cast<char*>(arena), static_cast<char*>(arena) + bytes, 0) == int64_t(bytes));
    std::vector<char> there(bytes, 'x'), back(bytes);
    sink.check(d.device->upload(d.self(), arena, there.data(), bytes, sink.get()));
    sink.check(d.device->download(d.self(), back.data(), arena, bytes, sink.get()));
    CHECK(there == back);
    d.device->free(d.self(), ENG_MEMORY_DEVICE, arena, bytes);
  }
  void* arena = nullptr;
  CHECK_THROWS_WITH(sink.check(d.device->alloc(d.self(), ENG_MEMORY_DEVICE, UINT64_MAX - 1, &arena, sink.get())),
                    Catch::Contains("18446744073709551614 bytes"));
}

TEST_CASE("Philox 4x32-10 gives the known answers") {
  CHECK(common::philox4x32_10(0, 0, 0) == common::PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(common::philox4x32_10(~0ull, ~0ull, ~0ull) ==
        common::PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // The digits of pi: every part of counter and key in its place.
  CHECK(common::philox4x32_10(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822) ==
        common::PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("init_uniform shows the words of Philox") {
  const std::vector<eng_attr> attrs = {real("low", 0), real("high", 1), whole("seed", 0), whole("stream", 0),
                                       whole("first", 0)};
  const Tensor u = reference().run(ENG_OP_INIT_UNIFORM, {}, {desc(ENG_F64, {4})}, attrs)[0];
  const double words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) CHECK(u.at(i) * 0x1p32 - 0.5 == words[i]);
}

TEST_CASE("an element's initial value depends on seed, stream and element only") {
  for (const char* op : {ENG_OP_INIT_NORMAL, ENG_OP_INIT_UNIFORM}) {
    const bool normal = std::string(op) == ENG_OP_INIT_NORMAL;
    const auto part = [&](int64_t seed, int64_t stream, int64_t first, int64_t n) {
      return reference().run(op, {}, {desc(ENG_F32, {n})},
                             {real(normal ? "mean" : "low", -0.5), real(normal ? "std" : "high", 2),
                              whole("seed", seed), whole("stream", stream), whole("first", first)})[0];
    };
    const Tensor all = part(7, 3, 0, 100);
    for (int64_t first : {1, 2, 3, 50}) {
      const Tensor some = part(7, 3, first, 100 - first);
      CHECK(std::memcmp(some.as<float>(), all.as<float>() + first, size_t(100 - first) * 4) == 0);
    }
    CHECK(!part(8, 3, 0, 100).same_bits(all));
    CHECK(!part(7, 4, 0, 100).same_bits(all));
    CHECK(!part(int64_t{7} | int64_t{1} << 32, 3, 0, 100).same_bits(all));  // the high half of the seed counts
    CHECK(part(7, 3, 0, 100).same_bits(all));
  }
}

TEST_CASE("init_normal has the moments of a normal distribution") {
  const int64_t n = 200000;
  const Tensor t = reference().run(
      ENG_OP_INIT_NORMAL, {}, {desc(ENG_F32, {n})},
      {real("mean", 0.25), real("std", 0.02), whole("seed", 42), whole("stream", 1), whole("first", 0)})[0];
  double mean = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0, last = 0;
  for (int64_t i = 0; i < n; ++i) mean += t.at(i) / double(n);
  for (int64_t i = 0; i < n; ++i) {
    const double z = (t.at(i) - mean) / 0.02;
    m2 += z * z / double(n), m3 += z * z * z / double(n), m4 += z * z * z * z / double(n);
    neighbours += z * last / double(n), last = z;
  }
  // Five standard errors of each estimate.
  const double root = std::sqrt(double(n));
  CHECK(std::fabs(mean - 0.25) < 5 * 0.02 / root);
  CHECK(std::fabs(m2 - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::fabs(m3) < 5 * std::sqrt(6.0) / root);
  CHECK(std::fabs(m4 - 3) < 5 * std::sqrt(96.0) / root);
  CHECK(std::fabs(neighbours) < 5 / root);
}

TEST_CASE("init_constant fills") {
  const Tensor t =
      reference().run(ENG_OP_INIT_CONSTANT, {}, {desc(ENG_F32, {5})}, {real("value", 1.5), whole("first", 9)})[0];
  for (int i = 0; i < 5; ++i) CHECK(t.at(i) == 1.5);
}

TEST_CASE("sum_squares is the lanes and the tree of ops.h") {
  Random random(1);
  const Tensor x = random_normal(random, ENG_F32, {3, 4096});
  const Tensor y = reference().run(ENG_OP_SUM_SQUARES, {x}, {desc(ENG_F32, {3})})[0];
  for (int64_t n = 0; n < 3; ++n) {
    std::vector<float> lane;
    for (int j = 0; j < 64; ++j) {
      float sum = 0;
      for (int i = j; i < 4096; i += 64) sum = std::fma(x.as<float>()[n * 4096 + i], x.as<float>()[n * 4096 + i], sum);
      lane.push_back(sum);
    }
    while (lane.size() > 1) {
      const size_t half = lane.size() / 2;
      for (size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
      lane.resize(half);
    }
    CHECK(y.as<float>()[n] == lane[0]);
    float plain = 0;  // another order gives other bits: the check can see the difference
    for (int i = 0; i < 4096; ++i) plain += x.as<float>()[n * 4096 + i] * x.as<float>()[n * 4096 + i];
    CHECK(plain != lane[0]);
  }
  CHECK_THAT(failure(ENG_OP_SUM_SQUARES, {Tensor(ENG_F32, {4095})}, {desc(ENG_F32, {1})}, {}, ENG_INVALID),
             Catch::Contains("4096") && Catch::Contains("4095"));
}

TEST_CASE("adamw updates an element as computed by hand") {
  // g = 2 * 0.5 = 1; m = 0 + 0.5 * 1; v = 0.25 * 0 + 0.75 * 1; p = 1 - 0.5 * (0.25 * 1) = 0.875;
  // step = (0.5 * 0.5 / 0.5) / (sqrt(0.75) / c2 + 0.125) with c2 = sqrt(0.75) in f32: 0.5 / 1.125
  Tensor scalars(ENG_F32, {ENG_S_COUNT});
  scalars.put(ENG_S_CLIP, 0.5), scalars.put(ENG_S_OK, 1), scalars.put(ENG_S_LR, 0.5);
  scalars.put(ENG_S_LR + 1, 0.5), scalars.put(ENG_S_LR + 2, std::sqrt(0.75f));
  const Tensor p(ENG_F32, {1}, {1}), g(ENG_F32, {1}, {2}), zero(ENG_F32, {1});
  const std::vector<eng_attr> attrs = {real("beta1", 0.5), real("beta2", 0.25), real("eps", 0.125),
                                       real("weight_decay", 0.25)};
  const std::vector<eng_desc> outs(3, p.d);
  const Device::InPlace in_place = {{0, 0}, {1, 2}, {2, 3}};
  auto r = reference().run(ENG_OP_ADAMW, {p, g, zero, zero, scalars}, outs, attrs, in_place);
  CHECK(r[0].as<float>()[0] == 0.875f - 0.5f / 1.125f);
  CHECK(r[1].at(0) == 0.5);
  CHECK(r[2].at(0) == 0.75);
  scalars.put(ENG_S_OK, 0);
  r = reference().run(ENG_OP_ADAMW, {p, g, zero, zero, scalars}, outs, attrs, in_place);
  CHECK((r[0].at(0) == 1 && r[1].at(0) == 0 && r[2].at(0) == 0));
}

TEST_CASE("adamw is the sequence of f32 operations of ops.h") {
  Random random(2);
  const int64_t n = 1000;
  const Tensor p = random_normal(random, ENG_F32, {n}), g = random_normal(random, ENG_F32, {n}),
               m = random_normal(random, ENG_F32, {n}, 0.1), s = random_normal(random, ENG_F32, {n}, 0.1);
  Tensor v(ENG_F32, {n}), scalars(ENG_F32, {ENG_S_COUNT});
  for (int64_t i = 0; i < n; ++i) v.put(i, s.at(i) * s.at(i));
  scalars.put(ENG_S_CLIP, 0.7), scalars.put(ENG_S_OK, 1), scalars.put(ENG_S_LR, 1e-3);
  scalars.put(ENG_S_LR + 1, 1 - std::pow(0.9, 3)), scalars.put(ENG_S_LR + 2, std::sqrt(1 - std::pow(0.999, 3)));
  for (float wd : {0.0f, 0.1f}) {
    const auto r = reference().run(
        ENG_OP_ADAMW, {p, g, m, v, scalars}, {p.d, m.d, v.d},
        {real("beta1", 0.9), real("beta2", 0.999), real("eps", 1e-8), real("weight_decay", double(wd))});
    int64_t wrong = 0, seen = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float clip = scalars.as<float>()[ENG_S_CLIP], lr = scalars.as<float>()[ENG_S_LR];
      const float c1 = scalars.as<float>()[ENG_S_LR + 1], c2 = scalars.as<float>()[ENG_S_LR + 2];
      const float grad = g.as<float>()[i] * clip;
      const float m1 = std::fma(float(1 - 0.9), grad - m.as<float>()[i], m.as<float>()[i]);
      const float square = grad * grad, fresh = float(1 - 0.999) * square;
      const float v1 = std::fma(0.999f, v.as<float>()[i], fresh);
      float q = p.as<float>()[i];
      const float decay = wd * q, shrink = lr * decay;
      q = q - shrink;
      const float up = lr * m1 / c1, root = std::sqrt(v1), down = root / c2 + 1e-8f;
      q = q - up / down;
      wrong += r[0].as<float>()[i] != q || r[1].as<float>()[i] != m1 || r[2].as<float>()[i] != v1;
      seen += r[2].as<float>()[i] != 0.999f * v.as<float>()[i] + fresh;  // without fma some bits differ
    }
    CHECK(wrong == 0);
    CHECK(seen > 0);
  }
}

TEST_CASE("sgd: plain, momentum, Nesterov, weight decay, first update, skipped update") {
  Tensor scalars(ENG_F32, {ENG_S_COUNT});
  scalars.put(ENG_S_CLIP, 0.5), scalars.put(ENG_S_OK, 1), scalars.put(ENG_S_LR, 0.25);
  const Tensor p(ENG_F32, {2}, {1, -2}), g(ENG_F32, {2}, {2, 4}), b(ENG_F32, {2}, {8, 16});
  const auto attrs = [](double mu, double wd, int64_t nesterov) {
    return std::vector<eng_attr>{real("momentum", mu), real("weight_decay", wd), whole("nesterov", nesterov)};
  };
  auto r = reference().run(ENG_OP_SGD, {p, g, scalars}, {p.d}, attrs(0, 0.5, 0), {{0, 0}});
  CHECK((r[0].at(0) == 1 - 0.25 * 1.5 && r[0].at(1) == -2 - 0.25 * 1));  // g = wd * p + grad * clip
  r = reference().run(ENG_OP_SGD, {p, g, Tensor(), scalars}, {p.d, eng_desc{}}, attrs(0, 0.5, 0));
  CHECK((r[0].at(0) == 1 - 0.25 * 1.5 && r[0].at(1) == -2 - 0.25 * 1));
  r = reference().run(ENG_OP_SGD, {p, g, b, scalars}, {p.d, b.d}, attrs(0.5, 0, 0), {{0, 0}, {1, 2}});
  CHECK((r[0].at(0) == 1 - 0.25 * 5 && r[1].at(0) == 5 && r[1].at(1) == 10));  // b = 0.5 * b + g
  r = reference().run(ENG_OP_SGD, {p, g, b, scalars}, {p.d, b.d}, attrs(0.5, 0, 1));
  CHECK((r[0].at(0) == 1 - 0.25 * 3.5 && r[1].at(0) == 5));  // g + 0.5 * b
  scalars.put(ENG_S_LR + 1, 1);
  r = reference().run(ENG_OP_SGD, {p, g, b, scalars}, {p.d, b.d}, attrs(0.5, 0, 0));
  CHECK((r[0].at(0) == 1 - 0.25 && r[1].at(0) == 1));
  scalars.put(ENG_S_OK, 0);
  r = reference().run(ENG_OP_SGD, {p, g, b, scalars}, {p.d, b.d}, attrs(0.5, 0, 0));
  CHECK((r[0].same_bits(p) && r[1].same_bits(b)));
  CHECK_THAT(failure(ENG_OP_SGD, {p, g, scalars}, {p.d}, attrs(0.5, 0, 0), ENG_INVALID), Catch::Contains("momentum"));
}

TEST_CASE("begin, get_row and put_row keep the counters") {
  const Tensor inputs(ENG_F32, {8}, {0.125});
  Device::Outputs out = {Tensor(ENG_F32, {ENG_S_COUNT}), Tensor(ENG_I64, {ENG_C_COUNT})};
  out[0].put(ENG_S_LR, 0.5);
  reference().run_on(ENG_OP_BEGIN, {inputs, counters(3, 2, 4)}, out);
  CHECK((out[0].at(ENG_S_INV_TOKENS) == 0.125 && out[0].at(ENG_S_LOSS_SCALE) == 1 && out[0].at(ENG_S_LR) == 0.5));
  CHECK(out[1].same_bits(counters(4, 2, 0)));

  Random random(3);
  const Tensor rows = random_ints(random, {3, 2, 5}, 0, 99);
  for (int64_t micro : {0, 2}) {
    const Tensor row = reference().run(ENG_OP_GET_ROW, {rows, counters(1, 1, micro)}, {desc(ENG_I32, {2, 5})})[0];
    CHECK(std::memcmp(row.as<char>(), rows.as<char>() + micro * 40, 40) == 0);
  }
  CHECK_THAT(failure(ENG_OP_GET_ROW, {rows, counters(1, 1, 3)}, {desc(ENG_I32, {2, 5})}, {}, ENG_OUT_OF_RANGE),
             Catch::Contains("micro-batch 3 of 3"));

  const Tensor losses(ENG_F32, {3}, {1, 2, 3}), loss(ENG_F32, {1}, {9});
  for (const Device::InPlace& in_place : {Device::InPlace{}, Device::InPlace{{0, 1}, {1, 2}}}) {
    const auto r = reference().run(ENG_OP_PUT_ROW, {loss, losses, counters(5, 6, 1)},
                                   {losses.d, desc(ENG_I64, {ENG_C_COUNT})}, {}, in_place);
    CHECK(r[0].same_bits(Tensor(ENG_F32, {3}, {1, 9, 3})));
    CHECK(r[1].same_bits(counters(5, 6, 2)));
  }
}

TEST_CASE("fold adds neighbours, and neighbours of neighbours") {
  Random random(5);
  const auto fold = [](const Tensor& x, int64_t rows) {
    return reference().run(ENG_OP_FOLD, {x}, {desc(x.d.dtype, {x.size() / rows})}, {whole("rows", rows)})[0];
  };
  const int64_t n = 257;
  const Tensor x = random_normal(random, ENG_F32, {9 * n});
  const auto first = [&](int64_t rows) {  // the first rows of x
    Tensor t(ENG_F32, {rows * n});
    std::memcpy(t.memory.data(), x.memory.data(), t.memory.size());
    return t;
  };
  using Tree = float (*)(const float*);
  constexpr Tree trees[] = {
      [](const float* a) { return a[0]; },
      [](const float* a) { return a[0] + a[1]; },
      [](const float* a) { return (a[0] + a[1]) + a[2]; },
      [](const float* a) { return (a[0] + a[1]) + (a[2] + a[3]); },
      [](const float* a) { return ((a[0] + a[1]) + (a[2] + a[3])) + a[4]; },
      [](const float* a) { return ((a[0] + a[1]) + (a[2] + a[3])) + (a[4] + a[5]); },
      [](const float* a) { return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + a[6]); },
      [](const float* a) { return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])); },
      [](const float* a) { return (((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))) + a[8]; }};
  for (int64_t rows = 1; rows <= 9; ++rows) {
    const Tensor sum = fold(first(rows), rows);
    Tensor want(ENG_F32, {n}), wide(ENG_F64, {rows * n});
    for (int64_t i = 0; i < rows * n; ++i) wide.put(i, x.at(i));
    for (int64_t j = 0; j < n; ++j) {
      float column[9];
      for (int64_t r = 0; r < rows; ++r) column[r] = x.as<float>()[r * n + j];
      want.as<float>()[j] = trees[rows - 1](column);
    }
    CHECK(sum.same_bits(want));
    CHECK(error_of(sum, fold(wide, rows)) < 1e-6);
  }
  // Groups of 2, 4 or 8 neighbours first, then the groups.
  const Tensor eight = fold(first(8), 8);
  for (int64_t group : {2, 4, 8}) {
    Tensor sums(ENG_F32, {8 / group * n});
    for (int64_t g = 0; g < 8 / group; ++g) {
      Tensor part(ENG_F32, {group * n});
      std::memcpy(part.memory.data(), x.as<float>() + g * group * n, part.memory.size());
      const Tensor sum = fold(part, group);
      std::memcpy(sums.as<float>() + g * n, sum.memory.data(), sum.memory.size());
    }
    CHECK(fold(sums, 8 / group).same_bits(eight));
  }
}

TEST_CASE("finish: norm, clip, table row, skipped update") {
  const Tensor table(ENG_F32, {2, 3}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  Tensor scalars(ENG_F32, {ENG_S_COUNT});
  scalars.put(ENG_S_LOSS_SCALE, 1);
  const auto run = [&](const std::vector<double>& partials, double max_norm, int64_t updates) {
    return reference().run(
        ENG_OP_FINISH, {Tensor(ENG_F32, {int64_t(partials.size())}, partials), table, scalars, counters(7, updates, 1)},
        {scalars.d, desc(ENG_I64, {ENG_C_COUNT})}, {real("max_norm", max_norm)}, {{0, 2}, {1, 3}});
  };
  auto r = run({9, 16}, 1, 0);
  CHECK((r[0].at(ENG_S_NORM) == 5 && r[0].at(ENG_S_OK) == 1));
  CHECK(r[0].as<float>()[ENG_S_CLIP] == float(1 / (5 + 1e-6)));
  CHECK(r[0].as<float>()[ENG_S_LR + 2] == 0.3f);
  CHECK(r[1].same_bits(counters(7, 1, 1)));
  r = run({9, 16}, 5, 1);  // not above the limit
  CHECK((r[0].at(ENG_S_CLIP) == 1 && r[0].as<float>()[ENG_S_LR] == 0.4f));
  CHECK(r[1].same_bits(counters(7, 2, 1)));
  CHECK(run({9, 16}, 0, 0)[0].at(ENG_S_CLIP) == 1);  // no limit
  // In f64: ones that f32 would lose beside the large partial, one by one, are not lost.
  std::vector<double> uneven(4097, 1.0);
  uneven[0] = 1 << 24;
  const float norm = run(uneven, 0, 0)[0].as<float>()[ENG_S_NORM];
  CHECK(norm == float(std::sqrt(double((1 << 24) + 4096))));
  CHECK(norm != 4096.0f);
  for (double bad : {std::nan(""), double(INFINITY)}) {
    r = run({9, bad}, 1, 1);
    CHECK(r[0].at(ENG_S_OK) == 0);
    CHECK(r[1].same_bits(counters(7, 1, 1)));
  }
  CHECK_THROWS_WITH(run({9}, 1, 2), Catch::Contains("update 2 of a table for 2"));
  // With a loss scale: the norm is that of the gradients divided by it, and so are the gradients of the update.
  scalars.put(ENG_S_LOSS_SCALE, 4);
  r = run({9 * 16, 16 * 16}, 1, 0);
  CHECK(r[0].at(ENG_S_NORM) == 5);
  CHECK(r[0].as<float>()[ENG_S_CLIP] == float(1 / (5 + 1e-6) / 4));
  CHECK(run({9 * 16, 16 * 16}, 5, 0)[0].at(ENG_S_CLIP) == 0.25);
}

TEST_CASE("a kernel says what it cannot serve") {
  const Tensor x(ENG_F32, {2, 3}), w(ENG_F32, {4, 5});
  CHECK_THAT(
      failure(ENG_OP_LINEAR, {x, w, Tensor()}, {desc(ENG_F32, {2, 4})}, {}, ENG_INVALID),
      Catch::Contains("w must be (N, K)") && Catch::Contains("[in f32 (2, 3) f32 (4, 5) absent; out f32 (2, 4)]"));
  CHECK_THAT(failure(ENG_OP_ADD, {x, Tensor(ENG_F64, {2, 3})}, {x.d}, {}, ENG_INVALID), Catch::Contains("f64"));
  CHECK_THAT(failure(ENG_OP_GATED, {x, x}, {x.d}, {}, ENG_INVALID), Catch::Contains("attribute act is missing"));
  CHECK_THAT(failure(ENG_OP_GATED, {x, x}, {x.d}, {whole("act", 9)}, ENG_UNSUPPORTED),
             Catch::Contains("act = 9 is unknown"));
  CHECK_THAT(failure(ENG_OP_EMBEDDING, {Tensor(ENG_I32, {1, 2}, {1, 4}), Tensor(ENG_F32, {4, 5})},
                     {desc(ENG_F32, {1, 2, 5})}, {}, ENG_OUT_OF_RANGE),
             Catch::Contains("token 4 at position 1"));
  CHECK_THAT(failure(ENG_OP_CROSS_ENTROPY, {x, Tensor(ENG_F32, {4, 3}), Tensor(ENG_I32, {2}, {3, -1})},
                     {desc(ENG_F32, {1})}, {}, ENG_OUT_OF_RANGE),
             Catch::Contains("label -1 at position 1"));
}
