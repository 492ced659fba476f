// SPDX-License-Identifier: Apache-2.0
// The ops of the loss of pairs of answers against the formulas of the papers, as tools/goldens/preference.py computes
// them in f64 by NumPy.
#include <catch2/catch.hpp>

#include <fstream>

#include "distance.hpp"
#include "kernel_harness.hpp"
#include "tests/paths.hpp"

using namespace kernels_test;

namespace {

constexpr const char *pairs_op = "eng.preference.pairs/1", *pairs_grad_op = "eng.preference.pairs_grad/1";

const eng_kernels* preference_kernels(const char* name) {
  void* library = dlopen(built_plugin("loss/preference.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  REQUIRE(library);
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
  return static_cast<const eng_kernels*>(query(ENG_ABI_MINOR)->get_interface(ENG_KERNELS_KIND, name));
}

// The numbers of a file.
struct Golden {
  std::ifstream file;
  explicit Golden(const std::string& name = "values.txt")
      : file(std::string(ENGINE_SOURCE_DIR) + "/tests/plugins/golden/" + name) {}
  double next() {
    double x = 0;
    REQUIRE(file >> x);
    return x;
  }
  Tensor table(int32_t dtype, const Dims& dims) {
    Tensor out(dtype, dims);
    for (int64_t k = 0; k < out.size(); ++k) out.put(k, next());
    return out;
  }
};

}  // namespace

TEST_CASE("losses of pairs of answers and their gradients are those of the papers") {
  Device device("cpu/reference.eng.so", "reference");
  device.kernels = preference_kernels("cpu");
  CHECK(preference_kernels("reference") == device.kernels);
  Golden golden;
  const auto rows = int64_t(golden.next()), length = int64_t(golden.next());
  const int rules = int(golden.next());
  const Dims dims = {rows, length};
  const Tensor logprobs = golden.table(ENG_F64, dims), labels = golden.table(ENG_I32, dims),
               reference = golden.table(ENG_F32, dims);
  const std::vector<eng_desc> sums(6, desc(ENG_F64, {1}));
  const Tensor d_loss(ENG_F64, {1}, {0.625}), d_nll(ENG_F64, {1}, {-1.5});
  for (int rule = 0; rule < rules; ++rule) {
    const auto kind = int64_t(golden.next());
    const double beta = golden.next(), margin = golden.next(), smoothing = golden.next();
    INFO("rule " << rule << ", kind " << kind);
    const std::vector<eng_attr> attrs = {whole("kind", kind), real("beta", beta), real("margin", margin),
                                         real("smoothing", smoothing), whole("mean", int64_t(golden.next()))};
    const bool compares = kind < 2;
    const Tensor against = compares ? reference : Tensor();
    const auto got = device.run(pairs_op, {logprobs, labels, against}, sums, attrs);
    for (const Tensor& sum : got) CHECK(distance(sum, golden.table(ENG_F64, {1})) < 1e-13);
    const Tensor gradient = golden.table(ENG_F64, dims);
    const Tensor d =
        device.run(pairs_grad_op, {logprobs, labels, against, d_loss, d_nll}, {desc(ENG_F64, dims)}, attrs)[0];
    CHECK(distance(d, gradient) < 1e-13);
    // In f32 the values are those of f64, rounded.
    Tensor narrow(ENG_F32, dims);
    for (int64_t k = 0; k < narrow.size(); ++k) narrow.put(k, logprobs.at(k));
    const auto rounded =
        device.run(pairs_op, {narrow, labels, against}, std::vector<eng_desc>(6, desc(ENG_F32, {1})), attrs);
    for (size_t k = 0; k < got.size(); ++k) CHECK(distance(rounded[k], got[k]) < 1e-5);
    // Without the first gradient only the second term counts.
    const Tensor none(ENG_F64, {1}, {0.0});
    const auto second = [&](const Tensor& first) {
      return device.run(pairs_grad_op, {logprobs, labels, against, first, d_nll}, {desc(ENG_F64, dims)}, attrs)[0];
    };
    CHECK(second(none).same_bits(second(Tensor())));
  }
}

TEST_CASE("with weights the losses of pairs are those of each pair alone, times its weight; rewards are as without") {
  Device device("cpu/reference.eng.so", "reference");
  device.kernels = preference_kernels("cpu");
  Golden golden;
  const auto rows = int64_t(golden.next()), length = int64_t(golden.next());
  golden.next();
  const Dims dims = {rows, length}, pair = {2, length};
  const Tensor logprobs = golden.table(ENG_F64, dims), labels = golden.table(ENG_I32, dims),
               reference = golden.table(ENG_F32, dims);
  const std::vector<double> of_pair = {0.25, 0.0, 3.5, 2.0};  // the last one is padding
  Tensor weights(ENG_F32, dims);
  for (int64_t k = 0; k < weights.size(); ++k) weights.put(k, labels.at(k) == -100 ? 9.0 : 0.0);  // these are not read
  for (int64_t p = 0; p < rows / 2; ++p)
    for (int64_t k = 2 * p * length; k < (2 * p + 1) * length; ++k)
      if (labels.at(k) != -100) {
        weights.put(k, of_pair[size_t(p)]);
        break;
      }
  const auto part = [&](const Tensor& all, int32_t dtype, int64_t p) {
    Tensor out(dtype, pair);
    for (int64_t k = 0; k < out.size(); ++k) out.put(k, all.at(2 * p * length + k));
    return out;
  };
  const std::vector<eng_desc> sums(6, desc(ENG_F64, {1}));
  const Tensor d_loss(ENG_F64, {1}, {0.625}), d_nll(ENG_F64, {1}, {-1.5}), d_margin(ENG_F64, {1}, {0.3});
  for (int64_t kind = 0; kind < 4; ++kind) {
    INFO("kind " << kind);
    const std::vector<eng_attr> attrs = {whole("kind", kind), real("beta", 0.7), real("margin", kind == 2 ? 0.5 : 0),
                                         real("smoothing", 0), whole("mean", kind > 1)};
    const bool compares = kind < 2;
    const auto against = [&](const Tensor& one) { return compares ? one : Tensor(); };
    const auto got = device.run(pairs_op, {logprobs, labels, against(reference), weights}, sums, attrs);
    const auto plain = device.run(pairs_op, {logprobs, labels, against(reference)}, sums, attrs);
    for (size_t k = 2; k < 6; ++k) CHECK(got[k].same_bits(plain[k]));
    const auto gradient = [&](const Tensor& l, const Tensor& of, const Tensor& r, const Dims& shape, const Tensor& w,
                              const Tensor& a, const Tensor& b) {
      return device.run(pairs_grad_op, {l, of, against(r), a, b, {}, {}, d_margin, w}, {desc(ENG_F64, shape)},
                        attrs)[0];
    };
    const Tensor d = gradient(logprobs, labels, reference, dims, weights, d_loss, d_nll);
    double loss = 0, nll = 0;
    for (int64_t p = 0; p < rows / 2; ++p) {
      const Tensor l = part(logprobs, ENG_F64, p), of = part(labels, ENG_I32, p), r = part(reference, ENG_F32, p);
      const auto one = device.run(pairs_op, {l, of, against(r)}, sums, attrs);
      const double w = of_pair[size_t(p)];
      loss += w * one[0].at(0), nll += w * one[1].at(0);
      const Tensor own =
          gradient(l, of, r, pair, {}, Tensor(ENG_F64, {1}, {0.625 * w}), Tensor(ENG_F64, {1}, {-1.5 * w}));
      CHECK(distance(part(d, ENG_F64, p), own) < 1e-13);
    }
    CHECK(std::fabs(got[0].at(0) - loss) < 1e-13 * std::max(1.0, std::fabs(loss)));
    CHECK(std::fabs(got[1].at(0) - nll) < 1e-13 * std::max(1.0, std::fabs(nll)));
    CHECK(std::fabs(got[0].at(0) - plain[0].at(0)) > 1e-3);  // they are seen
  }
  CHECK_THROWS_AS(device.run(pairs_op, {logprobs, labels, reference, Tensor(ENG_F32, {rows})}, sums, {}), Failure);
}

TEST_CASE("the loss of single answers and its gradient are those of the paper") {
  constexpr const char *kto_op = "eng.preference.kto/1", *kto_grad_op = "eng.preference.kto_grad/1";
  Device device("cpu/reference.eng.so", "reference");
  device.kernels = preference_kernels("cpu");
  Golden golden("kto.txt");
  const auto rows = int64_t(golden.next()), length = int64_t(golden.next());
  const int rules = int(golden.next());
  const Dims dims = {rows, length};
  const Tensor logprobs = golden.table(ENG_F64, dims), labels = golden.table(ENG_I32, dims),
               reference = golden.table(ENG_F32, dims), good = golden.table(ENG_F32, {rows});
  Tensor desirable(ENG_F32, dims);
  for (int64_t k = 0; k < desirable.size(); ++k) desirable.put(k, good.at(k / length));
  const std::vector<eng_desc> sums(3, desc(ENG_F64, {1}));
  const Tensor d_loss(ENG_F64, {1}, {0.625});
  for (int rule = 0; rule < rules; ++rule) {
    INFO(rule);
    const double beta = golden.next(), of_good = golden.next(), of_bad = golden.next();
    const std::vector<eng_attr> attrs = {real("beta", beta), real("good", of_good), real("bad", of_bad)};
    const auto got = device.run(kto_op, {logprobs, labels, reference, desirable}, sums, attrs);
    for (const Tensor& sum : got) CHECK(distance(sum, golden.table(ENG_F64, {1})) < 1e-13);
    const Tensor d =
        device.run(kto_grad_op, {logprobs, labels, reference, desirable, d_loss}, {desc(ENG_F64, dims)}, attrs)[0];
    CHECK(distance(d, golden.table(ENG_F64, dims)) < 1e-13);
    // Answers that are all good have another gradient: the flags are seen.
    Tensor all(ENG_F32, dims);
    for (int64_t k = 0; k < all.size(); ++k) all.put(k, 1);
    const auto other =
        device.run(kto_grad_op, {logprobs, labels, reference, all, d_loss}, {desc(ENG_F64, dims)}, attrs);
    CHECK_FALSE(other[0].same_bits(d));
    // The weight of an answer multiplies its loss and its gradient, and no more.
    Tensor twice(ENG_F32, dims), second(ENG_F32, dims);
    for (int64_t k = 0; k < twice.size(); ++k) {
      const bool first = labels.at(k) != -100 && (k % length == 0 || labels.at(k - 1) == -100);
      twice.put(k, first ? 2 : 0), second.put(k, first && k / length == 2 ? 1 : 0);
    }
    const auto weighted = [&](const Tensor& weights) {
      return device.run(kto_op, {logprobs, labels, reference, desirable, weights}, sums, attrs);
    };
    const auto gradient = [&](const Tensor& weights) {
      return device.run(kto_grad_op, {logprobs, labels, reference, desirable, d_loss, weights}, {desc(ENG_F64, dims)},
                        attrs)[0];
    };
    CHECK(std::fabs(weighted(twice)[0].at(0) - 2 * got[0].at(0)) < 1e-13);
    for (size_t k = 1; k < 3; ++k) CHECK(weighted(second)[k].same_bits(got[k]));
    const Tensor doubled = gradient(twice), alone = gradient(second);
    for (int64_t k = 0; k < d.size(); ++k) {
      CHECK(doubled.at(k) == Approx(2 * d.at(k)).margin(1e-15));
      CHECK(alone.at(k) == (k / length == 2 ? d.at(k) : 0.0));
    }
  }
  CHECK_THROWS_AS(device.run(kto_op, {logprobs, labels, reference, {}}, sums, {real("beta", 1)}), Failure);
}

TEST_CASE("log-probabilities far from each other give no infinity") {
  Device device("cpu/reference.eng.so", "reference");
  device.kernels = preference_kernels("cpu");
  const std::vector<eng_desc> sums(6, desc(ENG_F32, {1}));
  const Tensor labels(ENG_I32, {2, 1}, {3, 4}), one(ENG_F32, {1}, {1.0});
  for (int64_t kind = 0; kind < 4; ++kind)
    for (const bool ahead : {false, true}) {
      const std::vector<eng_attr> attrs = {whole("kind", kind), real("beta", 2), real("margin", 0),
                                           real("smoothing", 0), whole("mean", 1)};
      const Tensor logprobs(ENG_F32, {2, 1}, {ahead ? -1e-4 : -2000.0, ahead ? -2000.0 : -1e-4});
      const auto got = device.run(pairs_op, {logprobs, labels}, sums, attrs);
      const Tensor d = device.run(pairs_grad_op, {logprobs, labels, {}, one, one}, {desc(ENG_F32, {2, 1})}, attrs)[0];
      INFO("kind " << kind << ", ahead " << ahead);
      for (const Tensor& sum : got) CHECK(std::isfinite(sum.at(0)));
      CHECK((std::isfinite(d.at(0)) && std::isfinite(d.at(1))));
      CHECK(got[5].at(0) == (ahead ? 1 : 0));
    }
}

TEST_CASE("sequences without a partner and other types are refused") {
  Device device("cpu/reference.eng.so", "reference");
  const std::vector<eng_desc> sums(6, desc(ENG_F32, {1}));
  device.kernels = preference_kernels("cpu");
  const std::vector<eng_attr> none;
  CHECK_THROWS_AS(device.run(pairs_op, {Tensor(ENG_F32, {2, 3}), Tensor(ENG_I32, {2, 3})}, sums, none), Failure);
}
