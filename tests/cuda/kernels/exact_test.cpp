// SPDX-License-Identifier: Apache-2.0
// The ops that engine/ops.h calls EXACT: the bits of the reference device.
#include "emulated.hpp"

using namespace cuda_test;

namespace {

// Numbers of all sizes, and every special value.
Tensor wild(Random& random, int32_t type, const Dims& dims) {
  Tensor t = random_normal(random, type, dims);
  const double special[] = {0.0,   -0.0, INFINITY, -INFINITY, NAN,   65504, 65519.9,
                            65520, 1e-8, 6e-8,     3e38,      1e-40, 5.9e-8};
  for (int64_t i = 0; i < t.size(); ++i) {
    if (i % 5 == 0) t.put(i, t.at(i) * std::pow(2.0, double(pick(random, -40, 40))));
    if (i % 11 == 0) t.put(i, special[size_t(pick(random, 0, 12))]);
  }
  return t;
}

Tensor scalars_of(float ok, float clip, float lr, float a, float b) {
  Tensor t(ENG_F32, {ENG_S_COUNT});
  float* s = t.as<float>();
  s[ENG_S_OK] = ok, s[ENG_S_CLIP] = clip, s[ENG_S_LR] = lr, s[ENG_S_LR + 1] = a, s[ENG_S_LR + 2] = b;
  s[ENG_S_LOSS_SCALE] = 8;
  return t;
}

}  // namespace

TEST_CASE("emulated cuda: scale and cast, exactly") {
  Random random(2);
  const Dims dims = GENERATE(Dims{1}, Dims{3, 7}, Dims{4, 1030});
  for (const int32_t from : {ENG_F32, ENG_BF16, ENG_F16}) {
    const Tensor x = wild(random, from, dims);
    check_exact({ENG_OP_SCALE, {random_normal(random, from, dims)}, {x.d}, {real("factor", 0.3)}, {{0, 0}}});
    for (const int32_t to : {ENG_F32, ENG_BF16, ENG_F16})
      check_exact({ENG_OP_CAST, {x}, {desc(to, dims)}, {whole("dtype", to)}});
  }
  const Tensor x = wild(random, ENG_F32, dims), y = wild(random, ENG_F64, dims);
  check_exact({ENG_OP_CAST, {x}, {y.d}, {whole("dtype", ENG_F64)}});
  check_exact({ENG_OP_CAST, {random_normal(random, ENG_F64, dims)}, {x.d}, {whole("dtype", ENG_F32)}});
}

TEST_CASE("emulated cuda: the step's own ops, exactly") {
  Random random(3);
  const Tensor inputs(ENG_F32, {8}, {0.125, 1, 2, 3, 4, 5, 6, 7}), count = counters(7, 5, 2);
  const Tensor scalars = scalars_of(1, 0.5f, 1e-3f, 0.1f, 0.2f);
  const eng_desc s = scalars.d, k = count.d;
  check_exact({ENG_OP_BEGIN, {inputs, count}, {s, k}, {}, {{1, 1}}});
  check_exact({ENG_OP_BEGIN, {inputs, count}, {s, k}});
  for (const int32_t type : {ENG_F32, ENG_I32, ENG_BF16}) {
    Tensor rows(type, {4, 3, 5});
    for (int64_t i = 0; i < rows.size(); ++i) rows.put(i, double(i));
    check_exact({ENG_OP_GET_ROW, {rows, count}, {desc(type, {3, 5})}});
  }
  const Tensor row(ENG_F32, {1}, {3.5}), rows = random_normal(random, ENG_F32, {4});
  check_exact({ENG_OP_PUT_ROW, {row, rows, count}, {rows.d, k}});
  check_exact({ENG_OP_PUT_ROW, {row, rows, count}, {rows.d, k}, {}, {{0, 1}, {1, 2}}});
  const Tensor wide = random_normal(random, ENG_F32, {5}), all = random_normal(random, ENG_F32, {4, 5});
  check_exact({ENG_OP_PUT_ROW, {wide, all, count}, {all.d, k}, {}, {{0, 1}, {1, 2}}});
  Tensor of_loss = scalars;
  of_loss.as<float>()[ENG_S_INV_TOKENS] = 0.3f;
  for (const double weight : {1.0, 1e-4, -0.3})
    for (const int64_t labels : {1, 0}) {
      const std::vector<eng_attr> attrs = {real("weight", weight), whole("dtype", ENG_F32), whole("labels", labels)};
      check_exact({ENG_OP_LOSS_SEED, {of_loss}, {desc(ENG_F32, {1})}, attrs});
    }
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16})
    check_exact({ENG_OP_SUM_SQUARES, {random_normal(random, type, {3 * 4096}, 3.0)}, {desc(ENG_F32, {3})}});
  const Tensor table = random_normal(random, ENG_F32, {9, 3});
  for (const double max_norm : {0.0, 1.0, 1e9}) {
    Tensor partials = random_normal(random, ENG_F32, {2500});
    for (int64_t i = 0; i < partials.size(); ++i)
      partials.put(i, std::fabs(partials.at(i)) * std::pow(2.0, double(i % 30)));
    check_exact({ENG_OP_FINISH, {partials, table, scalars, count}, {s, k}, {real("max_norm", max_norm)}});
    check_exact({ENG_OP_FINISH, {Tensor(ENG_F32, {0}), table, scalars, count}, {s, k}, {real("max_norm", max_norm)}});
    partials.put(3, max_norm > 0 ? NAN : INFINITY);
    check_exact(
        {ENG_OP_FINISH, {partials, table, scalars, count}, {s, k}, {real("max_norm", max_norm)}, {{0, 2}, {1, 3}}});
  }
}

TEST_CASE("emulated cuda: the finish of a step sums in lanes, whatever the number of partials, exactly") {
  Random random(6);
  const Tensor table = random_normal(random, ENG_F32, {9, 3}), count = counters(7, 5, 2);
  const Tensor scalars = scalars_of(1, 0.5f, 1e-3f, 0.1f, 0.2f);
  const auto finish = [&](const Tensor& partials) {
    check_exact({ENG_OP_FINISH, {partials, table, scalars, count}, {scalars.d, count.d}, {real("max_norm", 1)}});
  };
  for (const int64_t n : {0, 1, 3, 31, 32, 33, 1023, 1024, 1025, 2048, 4097, 20000}) {
    INFO(n << " partials");
    Tensor partials = random_normal(random, ENG_F32, {n});
    // In most lanes a large one comes and goes: what is summed meanwhile is rounded to quarters, so another order has
    // other bits.
    for (int64_t i = 0; i < n; ++i) {
      const int64_t turn = i / 1024;
      partials.put(i, turn % 2 || i % 3 == 0 ? std::fabs(partials.at(i)) : turn % 4 ? -0x1p50 : 0x1p50);
    }
    finish(partials);
  }
  finish(Tensor(ENG_F32, {1}, {-0.0}));
}

TEST_CASE("emulated cuda: fold, exactly") {
  Random random(4);
  const int64_t rows = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 13, 64);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    for (const int64_t n : {37, 72}) {
      const Tensor x = random_normal(random, type, {rows * n});
      check_exact({ENG_OP_FOLD, {x}, {desc(type, {n})}, {whole("rows", rows)}});
      check_exact({ENG_OP_FOLD, {x}, {desc(ENG_F32, {n})}, {whole("rows", rows), whole("dtype", ENG_F32)}});
    }
  }
}

TEST_CASE("emulated cuda: the loss scale, exactly") {
  Random random(5);
  const std::vector<eng_attr> attrs = {real("initial", 65536), real("minimum", 2), whole("hysteresis", GENERATE(1, 2)),
                                       whole("window", GENERATE(0, 3)), whole("consecutive", GENERATE(0, 1))};
  Tensor state(ENG_F32, {ENG_SCALER_COUNT});
  for (int round = 0; round < 24; ++round) {
    const Tensor scalars = scalars_of(float(pick(random, 0, 3) > 0), 1, 1, 1, 1);
    check_exact({ENG_OP_LOSS_SCALE, {state, scalars}, {scalars.d}, attrs});
    const Use use{ENG_OP_SCALER, {state, scalars}, {state.d}, attrs, {{0, 0}}};
    check_exact(use);
    check_exact({ENG_OP_SCALER, {state, scalars}, {state.d}, attrs});
    state = outputs(use)[0];
  }
}

TEST_CASE("emulated cuda: adamw and sgd, exactly") {
  Random random(6);
  const Dims n = GENERATE(Dims{1}, Dims{64}, Dims{2051});
  const float ok = GENERATE(1.0f, 0.0f);
  const auto normal = [&](int32_t type) { return random_normal(random, type, n); };
  Tensor v = normal(ENG_F32);
  for (int64_t i = 0; i < v.size(); ++i) v.put(i, v.at(i) * v.at(i));
  const Tensor scalars = scalars_of(ok, 0.7f, 1e-2f, 0.271f, 0.1f), p = normal(ENG_F32), g = normal(ENG_F32),
               m = normal(ENG_F32);
  for (const double decay : {0.0, 0.1}) {
    std::vector<eng_attr> attrs = {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8),
                                   real("weight_decay", decay)};
    check_exact({ENG_OP_ADAMW, {p, g, m, v, scalars}, {p.d, p.d, p.d}, attrs, {{0, 0}, {1, 2}, {2, 3}}});
    for (const int32_t type : {ENG_BF16, ENG_F16}) {
      std::vector<eng_attr> more = attrs;
      more.push_back(whole("weight", type));
      check_exact({ENG_OP_ADAMW, {p, g, m, v, scalars}, {p.d, p.d, p.d, desc(type, n)}, more});
    }
    // In bf16, rounded at random.
    for (const char* key : {"seed", "stream"}) attrs.push_back(whole(key, 1234567 + int64_t(key[1])));
    attrs.push_back(whole("first", 96));
    const Tensor p16 = normal(ENG_BF16), m16 = normal(ENG_BF16);
    Tensor v16 = normal(ENG_BF16);
    for (int64_t i = 0; i < v16.size(); ++i) v16.put(i, std::fabs(v16.at(i)));
    for (const int32_t type : {ENG_F32, ENG_BF16})
      check_exact(
          {ENG_OP_ADAMW, {p16, normal(type), m16, v16, scalars, counters(9, 8, 0)}, {p16.d, p16.d, p16.d}, attrs});
    for (const int64_t nesterov : {0, 1}) {
      const std::vector<eng_attr> sgd = {real("momentum", 0.9), real("weight_decay", decay),
                                         whole("nesterov", nesterov)};
      const Tensor first = scalars_of(ok, 0.7f, 1e-2f, 1.0f, 0.1f);
      for (const Tensor& s : {scalars, first})
        check_exact({ENG_OP_SGD, {p, g, m, s}, {p.d, p.d}, sgd, {{0, 0}, {1, 2}}});
    }
    check_exact({ENG_OP_SGD,
                 {p, g, Tensor(), scalars},
                 {p.d},
                 {real("momentum", 0.0), real("weight_decay", decay), whole("nesterov", 0)}});
  }
}
