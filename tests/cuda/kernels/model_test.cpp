// SPDX-License-Identifier: Apache-2.0
#include "emulated.hpp"
#include "plugins/cuda/kernels/library.hpp"

using namespace cuda_test;

namespace {

double tolerance(int32_t type) {
  return type == ENG_F32 ? 5e-6 : type == ENG_BF16 ? 1.5e-2 : 3e-3;
}

// The places where outputs of linear_relu differ: of y, and of the mask where y is 0 and where it is not. Where the sum
// is 0, the bit of a library may be either.
std::string different(const Tensor& y, const Tensor& mask, const Tensor& y_wanted, const Tensor& mask_wanted) {
  const int64_t m = y.d.dims[0], n = y.d.dims[1], bytes = mask.d.dims[1];
  int64_t values = 0, zeros = 0, others = 0, behind = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < bytes * 8; ++j) {
      const int64_t at = i * bytes + j / 8;
      const bool apart = (int(mask.at(at)) ^ int(mask_wanted.at(at))) >> j % 8 & 1;
      if (j >= n)
        behind += apart;
      else
        values += y.at(i * n + j) != y_wanted.at(i * n + j), (y_wanted.at(i * n + j) == 0 ? zeros : others) += apart;
    }
  if (std::getenv("ENG_TEST_DEVICE")) zeros = 0;
  if (values + zeros + others + behind == 0) return "";
  return std::to_string(values) + " values, bits of " + std::to_string(zeros) + " zeros, of " + std::to_string(others) +
         " others, " + std::to_string(behind) + " behind the last, of (" + std::to_string(m) + ", " +
         std::to_string(n) + ")";
}

}  // namespace

TEST_CASE("emulated cuda: linear, matmul and sum_rows") {
  Random random(21);
  const int32_t type = GENERATE(int32_t{ENG_F32}, int32_t{ENG_BF16}, int32_t{ENG_F16});
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{1, 1, 1}, Shape{3, 33, 70}, Shape{34, 36, 31}}) {
    const auto normal = [&](int32_t t, int64_t a, int64_t b) { return random_normal(random, t, {a, b}); };
    const Tensor x = normal(type, s.m, s.k), w = normal(type, s.n, s.k), bias = random_normal(random, type, {s.n});
    const eng_desc y = desc(type, {s.m, s.n});
    check_close({ENG_OP_LINEAR, {x, w, Tensor()}, {y}}, tolerance(type));
    check_close({ENG_OP_LINEAR, {x, w, bias}, {y}}, tolerance(type));
    for (const int64_t ta : {0, 1})
      for (const int64_t tb : {0, 1})
        for (const int32_t out : {type, int32_t{ENG_F32}}) {
          const Tensor a = ta ? normal(type, s.k, s.m) : x, b = tb ? w : normal(type, s.k, s.n),
                       acc = normal(out, s.m, s.n);
          const std::vector<eng_attr> attrs = {whole("ta", ta), whole("tb", tb)};
          check_close({ENG_OP_MATMUL, {a, b}, {acc.d}, attrs}, tolerance(type));
          check_close({ENG_OP_MATMUL, {a, b, acc}, {acc.d}, attrs, {{0, 2}}}, tolerance(type));
        }
    check_close({ENG_OP_SUM_ROWS, {x}, {desc(type, {s.k})}}, tolerance(type));
    check_close({ENG_OP_SUM_ROWS, {x, random_normal(random, ENG_F32, {s.k})}, {desc(ENG_F32, {s.k})}, {}, {{0, 1}}},
                tolerance(type));
  }
}

TEST_CASE("emulated cuda: linear with relu and its gradient") {
  Random random(26);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  // Whole numbers: their sums are exact, and so is the mask.
  const auto wholes = [&](const Dims& dims) {
    Tensor out(type, dims);
    for (int64_t k = 0; k < out.size(); ++k) out.put(k, double(pick(random, -2, 2)));
    return out;
  };
  for (const int64_t n : {1, 7, 40, 128, 130})
    for (const int64_t m : {1, 70}) {
      const Tensor x = wholes({m, 19}), w = wholes({n, 19}), bias = wholes({n});
      const eng_desc y = desc(type, {m, n}), mask = desc(ENG_U8, {m, eng_relu_mask_bytes(n)});
      for (const Tensor& b : {bias, Tensor()}) {
        const Use use{ENG_OP_LINEAR_RELU, {x, w, b}, {y, mask}};
        const auto got = outputs(use), want = use.wanted();
        INFO("(" << m << ", " << n << "), type " << type << (b.d.dtype ? ", bias" : ""));
        CHECK(different(got[0], got[1], want[0], want[1]) == "");
      }
      Tensor bits(mask);
      for (int64_t k = 0; k < bits.size(); ++k) bits.put(k, double(random() % 256));
      const Tensor dy = random_normal(random, type, {m, 19}), w2 = random_normal(random, type, {19, n});
      check_close({ENG_OP_MATMUL_RELU_GRAD, {dy, w2, bits}, {y}, {whole("sums", 0)}}, tolerance(type));
      for (const int32_t sums : {type, int32_t{ENG_F32}}) {
        const Tensor acc = random_normal(random, sums, {n});
        const std::vector<eng_attr> attrs = {whole("sums", 1)};
        check_close({ENG_OP_MATMUL_RELU_GRAD, {dy, w2, bits}, {y, acc.d}, attrs}, tolerance(type));
        check_close({ENG_OP_MATMUL_RELU_GRAD, {dy, w2, bits, acc}, {y, acc.d}, attrs, {{1, 3}}}, tolerance(type));
      }
    }
}

TEST_CASE("emulated cuda: sums over many rows, linear's bias gradient") {
  Random random(25);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  for (const Dims& dims : {Dims{64, 37}, Dims{64, 264}, Dims{65, 37}, Dims{700, 37}, Dims{700, 264}, Dims{5000, 37}}) {
    const Tensor x = random_normal(random, type, dims), acc = random_normal(random, ENG_F32, {dims[1]});
    check_close({ENG_OP_SUM_ROWS, {x, acc}, {acc.d}, {}, {{0, 1}}}, tolerance(type));
    check_close({ENG_OP_SUM_ROWS, {x}, {desc(type, {dims[1]})}}, tolerance(type));
  }
}

TEST_CASE("emulated cuda: attention and its gradient") {
  Random random(22);
  const int32_t type = GENERATE(int32_t{ENG_F32}, int32_t{ENG_BF16}, int32_t{ENG_F16});
  struct Shape {
    int64_t batch, length, heads, kv, size;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1, 4}, Shape{2, 9, 4, 2, 16}, Shape{1, 19, 3, 1, 20}, Shape{1, 5, 1, 1, 160}}) {
    const std::vector<eng_attr> attrs = {whole("heads", s.heads), whole("kv_heads", s.kv), real("scale", 0.25)};
    const Dims wide = {s.batch, s.length, s.heads * s.size}, narrow = {s.batch, s.length, s.kv * s.size};
    const Tensor q = random_normal(random, type, wide), k = random_normal(random, type, narrow),
                 v = random_normal(random, type, narrow);
    const eng_desc lse = desc(ENG_F32, {s.batch, s.heads, s.length});
    check_close({ENG_OP_ATTENTION, {q, k, v}, {q.d, lse}, attrs}, tolerance(type));
    const Device::Outputs o = reference().run(ENG_OP_ATTENTION, {q, k, v}, {q.d, lse}, attrs);
    const Tensor grad = random_normal(random, type, wide);
    check_close({ENG_OP_ATTENTION_GRAD, {grad, q, k, v, o[0], o[1]}, {q.d, k.d, v.d}, attrs}, 2 * tolerance(type));
    const Dims cache = {s.batch, s.length + 5, s.kv * s.size};
    Tensor count = counters(0, 0, 0);
    count.as<int64_t>()[ENG_C_POSITION] = 4;
    const Tensor keys = random_normal(random, type, cache), values = random_normal(random, type, cache);
    check_close(
        {ENG_OP_ATTENTION_STEP, {q, k, v, keys, values, count}, {q.d, keys.d, values.d}, attrs, {{1, 3}, {2, 4}}},
        tolerance(type));
  }
}

TEST_CASE("emulated cuda: cross-entropy and its gradient") {
  Random random(23);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  const Tensor x = random_normal(random, type, {2, 5, 12}), w = random_normal(random, type, {67, 12});
  Tensor labels = random_ints(random, {2, 5}, 0, 66), scalars(ENG_F32, {ENG_S_COUNT});
  labels.put(3, -100), scalars.put(ENG_S_INV_TOKENS, 1.0 / 9), scalars.put(ENG_S_LOSS_SCALE, 4);
  const eng_desc loss = desc(ENG_F32, {1});
  check_close({ENG_OP_CROSS_ENTROPY, {x, w, labels}, {loss}}, 1e-5);
  for (const int32_t sums : {type, int32_t{ENG_F32}}) {
    const Tensor acc = random_normal(random, sums, {67, 12});
    check_close({ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars}, {loss, x.d, acc.d}, {whole("no_dw", 0)}},
                tolerance(type));
    check_close(
        {ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, acc}, {loss, x.d, acc.d}, {whole("no_dw", 0)}, {{2, 4}}},
        tolerance(type));
  }
  check_close({ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars}, {loss, x.d}, {whole("no_dw", 1)}}, tolerance(type));
  // A z loss, a weight and loss weights.
  const std::vector<eng_attr> attrs{real("weight", 0.5), real("z_loss", 0.25), whole("no_dw", 0)};
  for (const Tensor& of_tokens : {Tensor(), random_normal(random, ENG_F32, {2, 5})}) {
    check_close({ENG_OP_CROSS_ENTROPY, {x, w, labels, of_tokens}, {loss, loss}, {real("z_loss", 0.25)}}, 1e-5);
    check_close(
        {ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, Tensor(), of_tokens}, {loss, x.d, w.d, loss}, attrs},
        tolerance(type));
    check_close({ENG_OP_CROSS_ENTROPY_GRAD,
                 {x, w, labels, scalars, Tensor(), of_tokens},
                 {loss, x.d, loss},
                 {attrs[0], attrs[1], whole("no_dw", 1)}},
                tolerance(type));
  }
  labels.put(5, 67);
  CHECK(std::isnan(outputs({ENG_OP_CROSS_ENTROPY, {x, w, labels}, {loss}})[0].at(0)));
}

TEST_CASE("emulated cuda: a loss of more tokens than are summed at once") {
  Random random(29);
  check_close({ENG_OP_CROSS_ENTROPY,
               {random_normal(random, ENG_F32, {1, 1100, 3}), random_normal(random, ENG_F32, {5, 3}),
                random_ints(random, {1, 1100}, 0, 4)},
               {desc(ENG_F32, {1})}},
              1e-5);
}

TEST_CASE("emulated cuda: log-probabilities of labels and their gradient") {
  Random random(27);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  const Tensor x = random_normal(random, type, {2, 5, 12}), w = random_normal(random, type, {67, 12});
  const Tensor dy = random_normal(random, ENG_F32, {2, 5});
  Tensor labels = random_ints(random, {2, 5}, 0, 66);
  labels.put(3, -100);
  check_close({ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy.d}}, 1e-6);
  for (const int32_t sums : {type, int32_t{ENG_F32}}) {
    const Tensor acc = random_normal(random, sums, {67, 12});
    check_close({ENG_OP_LABEL_LOGPROB_GRAD, {x, w, labels, dy}, {x.d, acc.d}, {whole("no_dw", 0)}}, tolerance(type));
    check_close({ENG_OP_LABEL_LOGPROB_GRAD, {x, w, labels, dy, acc}, {x.d, acc.d}, {whole("no_dw", 0)}, {{1, 4}}},
                tolerance(type));
  }
  const Use frozen{ENG_OP_LABEL_LOGPROB_GRAD, {x, w, labels, dy}, {x.d}, {whole("no_dw", 1)}};
  check_close(frozen, tolerance(type));
  for (int64_t h = 0; h < 12; ++h) CHECK(outputs(frozen)[0].at(3 * 12 + h) == 0);
  // Each is the cross-entropy of its label, with its sign changed.
  const Tensor each = outputs({ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy.d}})[0];
  const Tensor loss = outputs({ENG_OP_CROSS_ENTROPY, {x, w, labels}, {desc(ENG_F32, {1})}})[0];
  double sum = 0;
  for (int64_t k = 0; k < each.size(); ++k) sum += each.at(k);
  CHECK(sum == Approx(-loss.at(0)).epsilon(1e-6));
  labels.put(5, 67);
  CHECK(std::isnan(outputs({ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy.d}})[0].at(5)));
}

TEST_CASE("emulated cuda: cross-entropy and log-probabilities with products of a library, in chunks") {
  static Device device(device_file(), "cuda");
  if (device.info.settings[0] == 0) device.info.settings[0] = 1;
  device.info.settings[cuda::library::loss_chunk_setting] = 3;
  Random random(24);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  const int64_t vocabulary = GENERATE(2100, 2101);  // several rounds of a block; the last vector is whole or is not
  const Tensor x = random_normal(random, type, {1, 7, 8}), w = random_normal(random, type, {vocabulary, 8});
  Tensor labels = random_ints(random, {1, 7}, 0, static_cast<int>(vocabulary) - 1), scalars(ENG_F32, {ENG_S_COUNT});
  labels.put(2, -100), scalars.put(ENG_S_INV_TOKENS, 1.0 / 6), scalars.put(ENG_S_LOSS_SCALE, 1);
  const eng_desc loss = desc(ENG_F32, {1});
  for (const int32_t sums : {type, int32_t{ENG_F32}}) {
    const Tensor acc = random_normal(random, sums, {vocabulary, 8});
    Use use{ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, acc}, {loss, x.d, acc.d}, {whole("no_dw", 0)}, {{2, 4}}};
    use.on = &device;
    check_close(use, 2 * tolerance(type));
    const Tensor dy = random_normal(random, ENG_F32, {1, 7});
    use.op = ENG_OP_LABEL_LOGPROB_GRAD, use.in[3] = dy, use.out = {x.d, acc.d}, use.in_place = {{1, 4}};
    check_close(use, 2 * tolerance(type));
    Use values{ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy.d}};
    values.on = &device;
    check_close(values, 1e-5);
  }
}

TEST_CASE("emulated cuda: cross-entropy and log-probabilities whose w has more rows than there are ids") {
  Random random(25);
  const int32_t type = GENERATE(from_range(types_of_long_cases()));
  const int64_t vocabulary = GENERATE(5, 1022, 1025), rows = 1088;  // one round of a block, and the begin of another
  const Tensor x = random_normal(random, type, {1, 7, 8}), w = random_normal(random, type, {rows, 8});
  Tensor labels = random_ints(random, {1, 7}, 0, static_cast<int>(vocabulary) - 1), scalars(ENG_F32, {ENG_S_COUNT});
  labels.put(2, -100), scalars.put(ENG_S_INV_TOKENS, 1.0 / 6), scalars.put(ENG_S_LOSS_SCALE, 1);
  const eng_desc loss = desc(ENG_F32, {1}), dy = desc(ENG_F32, {1, 7});
  const auto ids = whole("vocabulary", vocabulary);
  check_close({ENG_OP_CROSS_ENTROPY, {x, w, labels}, {loss}, {ids}}, 1e-5);
  check_close({ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy}, {ids}}, 1e-5);
  for (const int32_t sums : {type, int32_t{ENG_F32}}) {
    const Tensor acc = random_normal(random, sums, {rows, 8}), of_each = random_normal(random, ENG_F32, {1, 7});
    const Use use{ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars}, {loss, x.d, acc.d}, {whole("no_dw", 0), ids}};
    check_close(use, 2 * tolerance(type));
    const Tensor dw = outputs(use)[2];
    for (int64_t k = vocabulary * 8; k < rows * 8; ++k)
      if (dw.at(k) != 0) FAIL("element " << k << " of dw");
    check_close({ENG_OP_CROSS_ENTROPY_GRAD,
                 {x, w, labels, scalars, acc},
                 {loss, x.d, acc.d},
                 {whole("no_dw", 0), ids},
                 {{2, 4}}},
                2 * tolerance(type));
    check_close(
        {ENG_OP_LABEL_LOGPROB_GRAD, {x, w, labels, of_each, acc}, {x.d, acc.d}, {whole("no_dw", 0), ids}, {{1, 4}}},
        2 * tolerance(type));
  }
  labels.put(5, static_cast<double>(vocabulary));  // a row, but no id
  CHECK(std::isnan(outputs({ENG_OP_LABEL_LOGPROB, {x, w, labels}, {dy}, {ids}})[0].at(5)));
}
