// SPDX-License-Identifier: Apache-2.0
// The ops of preferences for the cuda device, emulated, beside the reference device.
#include "emulated.hpp"

namespace preference_on_cuda {

using namespace cuda_test;

namespace {

const Device& on() {
  static const Emulated device("loss");
  return device;
}
const Device& plain() {
  static const Plain device("loss/preference.eng.so");
  return device;
}

struct Answers {
  Tensor logprobs, labels, reference, desirable, weights;
};
// Questions of different lengths, whose labels do not count. In the third pair one answer has no label.
Answers answers(Random& random, const Dims& dims) {
  Answers a{random_normal(random, ENG_F32, dims), Tensor(ENG_I32, dims), random_normal(random, ENG_F32, dims),
            Tensor(ENG_F32, dims), random_normal(random, ENG_F32, dims)};
  for (int64_t k = 0; k < a.logprobs.size(); ++k) {
    const int64_t row = k / dims[1], at = k % dims[1];
    a.logprobs.put(k, -std::fabs(a.logprobs.at(k)) - 0.01), a.reference.put(k, -std::fabs(a.reference.at(k)));
    a.labels.put(k, row == 5 || at < (row * 7) % ((dims[1] + 1) / 2) ? -100 : double(k % 50));
    a.desirable.put(k, double(row % 4 == 0));
  }
  return a;
}
constexpr double apart = 1e-6;

}  // namespace

TEST_CASE("emulated cuda: losses of pairs of answers and their gradients") {
  Random random(61);
  const Dims dims = GENERATE(Dims{2, 1}, Dims{6, 37}, Dims{8, 300});
  const Answers a = answers(random, dims);
  const std::vector<eng_desc> sums(6, desc(ENG_F32, {1}));
  std::vector<Tensor> by;
  for (const double d : {0.625, -1.5, 0.25, 0.5, -0.75}) by.emplace_back(ENG_F32, Dims{1}, std::vector<double>{d});
  for (const int64_t kind : {0, 1, 2, 3})
    for (const int64_t mean : {0, 1}) {
      if (kind > 1 && !mean) continue;
      INFO("kind " << kind << ", mean " << mean << ", (" << dims[0] << ", " << dims[1] << ")");
      const std::vector<eng_attr> attrs = {whole("kind", kind), real("beta", 0.3), real("margin", kind == 2 ? 0.5 : 0),
                                           real("smoothing", kind % 2 ? 0 : 0.1), whole("mean", mean)};
      const Tensor against = kind < 2 ? a.reference : Tensor();
      for (const bool all : {true, false}) {
        const Tensor weights = all ? a.weights : Tensor();
        check_close(
            {"eng.preference.pairs/1", {a.logprobs, a.labels, against, weights}, sums, attrs, {}, &on(), &plain()},
            apart);
        check_close({"eng.preference.pairs_grad/1",
                     {a.logprobs, a.labels, against, by[0], all ? by[1] : Tensor(), all ? by[2] : Tensor(),
                      all ? by[3] : Tensor(), all ? by[4] : Tensor(), weights},
                     {a.logprobs.d},
                     attrs,
                     {},
                     &on(),
                     &plain()},
                    apart);
      }
    }
}

TEST_CASE("emulated cuda: the loss of single answers and its gradient") {
  Random random(62);
  const Dims dims = GENERATE(Dims{2, 1}, Dims{6, 37}, Dims{12, 300});
  const Answers a = answers(random, dims);
  const std::vector<eng_attr> attrs = {real("beta", 0.3), real("good", 1.25), real("bad", 0.75)};
  std::vector<Tensor> in = {a.logprobs, a.labels, a.reference, a.desirable, Tensor()};
  // k is the mean of the differences of the other answers, or 0 if that is negative.
  for (const bool above : {false, true}) {
    if (above) std::swap(in[0], in[2]), in[4] = a.weights;
    check_close({"eng.preference.kto/1", in, std::vector<eng_desc>(3, desc(ENG_F32, {1})), attrs, {}, &on(), &plain()},
                apart);
    std::vector<Tensor> with = in;
    with.emplace(with.begin() + 4, ENG_F32, Dims{1}, std::vector<double>{0.625});
    check_close({"eng.preference.kto_grad/1", with, {a.logprobs.d}, attrs, {}, &on(), &plain()}, apart);
  }
}

TEST_CASE("emulated cuda: log-probabilities of answers in f64 are refused") {
  const Tensor x(ENG_F64, {2, 3}), labels(ENG_I32, {2, 3});
  CHECK_THROWS_WITH(
      on().run("eng.preference.pairs/1", {x, labels}, std::vector<eng_desc>(6, desc(ENG_F64, {1})),
               {whole("kind", 3), real("beta", 1), real("margin", 0), real("smoothing", 0), whole("mean", 1)}),
      Catch::Contains("must be f32"));
}

}  // namespace preference_on_cuda
