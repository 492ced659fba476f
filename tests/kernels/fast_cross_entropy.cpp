// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of the cpu device and its gradient against plain loops in double.
#include <catch2/catch.hpp>

#include "fast_device.hpp"

using fast::Device;
using fast::error_of;
using fast::random_tensor;
using fast::Run;
using fast::Tensor;

namespace fast_cross_entropy {
namespace {

struct Problem {
  int64_t tokens, width, vocabulary;
  Tensor x, w, labels, scalars;
  Tensor of_tokens = {};          // loss weights, or absent
  double weight = 1, z_loss = 0;  // of the gradient
  Problem(int64_t n, int64_t h, int64_t v)
      : tokens(n),
        width(h),
        vocabulary(v),
        x(random_tensor({1, n, h}, 1)),
        w(random_tensor({v, h}, 2, 0.3f)),
        labels({1, n}, ENG_I32),
        scalars(random_tensor({ENG_S_COUNT}, 3)) {
    for (int64_t t = 0; t < n; ++t) labels.ints()[t] = t % 5 == 3 ? -100 : static_cast<int32_t>((t * 7919 + 1) % v);
    scalars[ENG_S_INV_TOKENS] = 1.0f / 64, scalars[ENG_S_LOSS_SCALE] = 2.0f;
  }
};

struct Plain {
  std::vector<double> loss, dx, dw, z{0.0};
};

// fault: what is taken from the probability of the label instead of 1.
Plain plain(const Problem& p, const Tensor* acc, double fault = 1.0) {
  Plain r{
      {0.0}, std::vector<double>(static_cast<size_t>(p.x.count)), std::vector<double>(static_cast<size_t>(p.w.count))};
  if (acc)
    for (int64_t k = 0; k < p.w.count; ++k) r.dw[static_cast<size_t>(k)] = (*acc)[k];
  const double scale = double(p.scalars[ENG_S_INV_TOKENS]) * p.scalars[ENG_S_LOSS_SCALE];
  std::vector<double> logits(static_cast<size_t>(p.vocabulary));
  for (int64_t t = 0; t < p.tokens; ++t) {
    const int32_t label = p.labels.ints()[t];
    if (label == -100) continue;
    double top = -INFINITY, sum = 0;
    for (int64_t v = 0; v < p.vocabulary; ++v) {
      double& z = logits[static_cast<size_t>(v)] = 0;
      for (int64_t h = 0; h < p.width; ++h) z += double(p.x[t * p.width + h]) * p.w[v * p.width + h];
      top = std::max(top, z);
    }
    for (const double z : logits) sum += std::exp(z - top);
    const double lse = top + std::log(sum), l = p.of_tokens.desc.dtype ? double(p.of_tokens[t]) : 1.0;
    r.loss[0] += l * (lse - logits[static_cast<size_t>(label)]);
    r.z[0] += l * lse * lse;
    for (int64_t v = 0; v < p.vocabulary; ++v) {
      const double softmax = std::exp(logits[static_cast<size_t>(v)] - top) / sum;
      const double g = l * scale * (p.weight * (softmax - (v == label ? fault : 0.0)) + p.z_loss * 2 * lse * softmax);
      for (int64_t h = 0; h < p.width; ++h) {
        r.dx[static_cast<size_t>(t * p.width + h)] += g * p.w[v * p.width + h];
        r.dw[static_cast<size_t>(v * p.width + h)] += g * p.x[t * p.width + h];
      }
    }
  }
  return r;
}

std::vector<std::string> sets() {
  std::vector<std::string> found;
  for (const char* isa : {"auto", "avx512", "avx2", "portable"})
    if (fast::isa_present(isa)) found.push_back(isa);
  return found;
}

}  // namespace

TEST_CASE("cross-entropy and its gradient agree with plain loops", "[cpu]") {
  const Problem problems[] = {{1, 3, 2}, {5, 7, 11}, {40, 32, 130}, {70, 20, 1001}};
  for (const auto& isa : sets())
    for (const Problem& p : problems)
      for (const bool with_acc : {false, true}) {
        INFO(isa << " tokens " << p.tokens << " vocabulary " << p.vocabulary << " acc " << with_acc);
        const Device device(2, isa);
        const Tensor acc = random_tensor({p.vocabulary, p.width}, 9, 0.1f);
        const Plain want = plain(p, with_acc ? &acc : nullptr);
        const Tensor loss({1}), loss2({1}), dx({1, p.tokens, p.width}), dw({p.vocabulary, p.width});
        Run forward(device, 2, ENG_OP_CROSS_ENTROPY, {p.x, p.w, p.labels}, {loss});
        Run backward(device, 2, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, with_acc ? acc : Tensor()},
                     {loss2, dx, dw});
        forward.launch(), backward.launch();
        CHECK(error_of(loss, want.loss) < 1e-6);
        CHECK(loss.same_bits(loss2));
        CHECK(error_of(dx, want.dx) < 3e-6);
        CHECK(error_of(dw, want.dw) < 3e-6);
        CHECK((forward.guards_intact() && backward.guards_intact()));
        const Tensor dx1 = dx.clone(), dw1 = dw.clone();
        backward.launch();
        CHECK((dx.same_bits(dx1) && dw.same_bits(dw1)));
        // A label's probability taken 1 % short would be seen.
        if (p.tokens > 1) CHECK(error_of(dx, plain(p, with_acc ? &acc : nullptr, 1.01).dx) > 1e-4);
        // Without dw the rest has the same bits.
        const Tensor loss3({1}), dx3({1, p.tokens, p.width});
        Run frozen(device, 2, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars}, {loss3, dx3});
        frozen.launch();
        CHECK((loss3.same_bits(loss2) && dx3.same_bits(dx) && frozen.guards_intact()));
        if (with_acc) {  // in place of the accumulator
          const Tensor both = acc.clone();
          Run in_place(device, 2, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, both}, {loss2, dx, both});
          in_place.launch();
          CHECK(both.same_bits(dw));
        }
      }
}

TEST_CASE("log-probabilities of labels and their gradient agree with plain loops", "[cpu]") {
  const Problem problems[] = {{1, 3, 2}, {5, 7, 11}, {70, 20, 1001}, {1030, 4, 9}};
  for (const auto& isa : sets())
    for (const Problem& p : problems) {
      INFO(isa << " tokens " << p.tokens << " vocabulary " << p.vocabulary);
      const Device device(2, isa);
      const Tensor acc = random_tensor({p.vocabulary, p.width}, 9, 0.1f), dy = random_tensor({1, p.tokens}, 10, 1.0f);
      std::vector<double> want(static_cast<size_t>(p.tokens)), dx(static_cast<size_t>(p.tokens * p.width)), dw;
      for (int64_t k = 0; k < acc.count; ++k) dw.push_back(double{acc[k]});
      for (int64_t t = 0; t < p.tokens; ++t) {
        const int64_t label = p.labels.ints()[t];
        if (label == -100) continue;
        std::vector<double> logits;
        double sum = 0;
        for (int64_t v = 0; v < p.vocabulary; ++v) {
          double z = 0;
          for (int64_t h = 0; h < p.width; ++h) z += double{p.x[t * p.width + h]} * double{p.w[v * p.width + h]};
          logits.push_back(z), sum += std::exp(z);
        }
        want[static_cast<size_t>(t)] = logits[static_cast<size_t>(label)] - std::log(sum);
        for (int64_t v = 0; v < p.vocabulary; ++v) {
          const double g = dy[t] * ((v == label ? 1.0 : 0.0) - std::exp(logits[static_cast<size_t>(v)]) / sum);
          for (int64_t h = 0; h < p.width; ++h) {
            dx[static_cast<size_t>(t * p.width + h)] += g * p.w[v * p.width + h];
            dw[static_cast<size_t>(v * p.width + h)] += g * p.x[t * p.width + h];
          }
        }
      }
      const Tensor y({1, p.tokens}), to_x({1, p.tokens, p.width}), to_w({p.vocabulary, p.width});
      Run forward(device, 2, ENG_OP_LABEL_LOGPROB, {p.x, p.w, p.labels}, {y});
      Run backward(device, 2, ENG_OP_LABEL_LOGPROB_GRAD, {p.x, p.w, p.labels, dy, acc}, {to_x, to_w});
      forward.launch(), backward.launch();
      CHECK(error_of(y, want) < 1e-6);
      CHECK(error_of(to_x, dx) < 3e-6);
      CHECK(error_of(to_w, dw) < 3e-6);
      CHECK((forward.guards_intact() && backward.guards_intact()));
      const Tensor alone({1, p.tokens, p.width}), both = acc.clone();
      Run frozen(device, 1, ENG_OP_LABEL_LOGPROB_GRAD, {p.x, p.w, p.labels, dy}, {alone}, {{"no_dw", 1, 0}});
      Run in_place(device, 2, ENG_OP_LABEL_LOGPROB_GRAD, {p.x, p.w, p.labels, dy, both}, {to_x, both});
      frozen.launch(), in_place.launch();
      CHECK((alone.same_bits(to_x) && both.same_bits(to_w)));
    }
}

TEST_CASE("cross-entropy with a z loss, a weight and loss weights", "[cpu]") {
  for (const auto& isa : sets())
    for (const int64_t tokens : {5, 70, 1030})
      for (const bool weighted : {false, true}) {
        INFO(isa << " tokens " << tokens << " loss weights " << weighted);
        Problem p(tokens, 12, tokens == 70 ? 1001 : 37);
        p.weight = 0.75, p.z_loss = 0.125;
        if (weighted) p.of_tokens = random_tensor({1, tokens}, 12);
        const Plain want = plain(p, nullptr);
        Tensor first;
        for (const uint32_t threads : {1U, 3U}) {
          const Device device(threads, isa);
          const Tensor loss({1}), loss2({1}), z({1}), z2({1}), dx({1, tokens, 12}), dw({p.vocabulary, 12});
          Run forward(device, threads, ENG_OP_CROSS_ENTROPY, {p.x, p.w, p.labels, p.of_tokens}, {loss, z},
                      {{"z_loss", 0, p.z_loss}});
          Run backward(device, threads, ENG_OP_CROSS_ENTROPY_GRAD,
                       {p.x, p.w, p.labels, p.scalars, Tensor(), p.of_tokens}, {loss2, dx, dw, z2},
                       {{"weight", 0, p.weight}, {"z_loss", 0, p.z_loss}});
          forward.launch(), backward.launch();
          CHECK(error_of(loss, want.loss) < 2e-6);
          CHECK(error_of(z, want.z) < 2e-6);
          CHECK((loss.same_bits(loss2) && z.same_bits(z2)));
          CHECK(error_of(dx, want.dx) < 3e-6);
          CHECK(error_of(dw, want.dw) < 3e-6);
          CHECK((forward.guards_intact() && backward.guards_intact()));
          Problem without = p;
          without.z_loss = 0;
          CHECK(error_of(dx, plain(without, nullptr).dx) > 1e-3);  // a forgotten z loss would be seen
          const Tensor dx3({1, tokens, 12}), z3({1});
          Run frozen(device, threads, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, Tensor(), p.of_tokens},
                     {loss2, dx3, z3}, {{"weight", 0, p.weight}, {"z_loss", 0, p.z_loss}, {"no_dw", 1, 0}});
          frozen.launch();
          CHECK((dx3.same_bits(dx) && z3.same_bits(z) && frozen.guards_intact()));
          if (threads == 1) first = dx.clone();
          CHECK(dx.same_bits(first));
        }
      }
}

TEST_CASE("cross-entropy of several chunks", "[cpu]") {
  const Problem p(1030, 8, 50);  // one whole chunk of 1,024 tokens and a rest
  for (const auto& isa : sets()) {
    const Plain want = plain(p, nullptr);
    Tensor first_dx, first_dw, first_loss;
    for (const uint32_t threads : {1U, 2U, 7U}) {
      const Device device(threads, isa);
      const Tensor loss({1}), dx({1, p.tokens, p.width}), dw({p.vocabulary, p.width});
      Run run(device, threads, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, Tensor()}, {loss, dx, dw});
      run.launch();
      CHECK(error_of(loss, want.loss) < 1e-6);
      CHECK(error_of(dx, want.dx) < 3e-6);
      CHECK(error_of(dw, want.dw) < 3e-6);
      CHECK(run.guards_intact());
      if (threads == 1) first_loss = loss.clone(), first_dx = dx.clone(), first_dw = dw.clone();
      CHECK((loss.same_bits(first_loss) && dx.same_bits(first_dx) && dw.same_bits(first_dw)));
    }
  }
}

TEST_CASE("cross-entropy of extreme logits stays finite", "[cpu]") {
  Problem p(6, 4, 33);
  for (int64_t k = 0; k < p.x.count; ++k) p.x[k] *= 200.0f;
  for (const auto& isa : sets()) {
    const Device device(1, isa);
    const Tensor loss({1}), dx({1, 6, 4}), dw({33, 4});
    Run run(device, 1, ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, Tensor()}, {loss, dx, dw});
    run.launch();
    const Plain want = plain(p, nullptr);
    CHECK(error_of(loss, want.loss) < 1e-6);
    CHECK(error_of(dx, want.dx) < 1e-4);
  }
}

// w with more rows behind, which must not be read: they are not numbers.
Tensor with_rows(const Tensor& w, int64_t rows, float value) {
  Tensor out({rows, w.desc.dims[1]});
  std::fill_n(out.data(), out.count, value);
  std::memcpy(out.data(), w.data(), static_cast<size_t>(w.count) * sizeof(float));
  return out;
}

// The first rows are those of `a`, and all behind them are `rest`.
bool starts_with(const Tensor& all, const Tensor& a, float rest) {
  return std::memcmp(all.data(), a.data(), static_cast<size_t>(a.count) * sizeof(float)) == 0 &&
         std::all_of(all.data() + a.count, all.data() + all.count, [&](float x) { return x == rest; });
}

TEST_CASE("rows of w behind the vocabulary change no bit of a head, and have zeros or dw_acc as gradient", "[cpu]") {
  const Problem p(1030, 12, 37);
  const int64_t rows = 64;
  const eng_attr vocabulary{"vocabulary", 37, 0};
  const Tensor w = with_rows(p.w, rows, NAN), dy = random_tensor({1, p.tokens}, 10),
               acc = random_tensor({37, 12}, 9, 0.1f);
  for (const auto& isa : sets())
    for (const bool with_acc : {false, true}) {
      INFO(isa << " acc " << with_acc);
      const Device device(2, isa);
      const Tensor all_acc = with_rows(acc, rows, 7.0f), none;
      const float rest = with_acc ? 7.0f : 0.0f;
      const auto run = [&](const char* op, const std::vector<Tensor>& in, const std::vector<Tensor>& out,
                           const std::vector<eng_attr>& attrs) {
        Run one(device, 2, op, in, out, attrs);
        one.launch();
        CHECK(one.guards_intact());
      };
      const auto tensors = [&](int64_t n) {
        return std::vector<Tensor>{Tensor({1}), Tensor({1, p.tokens, 12}), Tensor({n, 12})};
      };
      const std::vector<Tensor> plain = tensors(37), padded = tensors(rows);
      run(ENG_OP_CROSS_ENTROPY_GRAD, {p.x, p.w, p.labels, p.scalars, with_acc ? acc : none}, plain, {});
      run(ENG_OP_CROSS_ENTROPY_GRAD, {p.x, w, p.labels, p.scalars, with_acc ? all_acc : none}, padded, {vocabulary});
      CHECK((padded[0].same_bits(plain[0]) && padded[1].same_bits(plain[1]) && starts_with(padded[2], plain[2], rest)));
      run(ENG_OP_CROSS_ENTROPY, {p.x, w, p.labels}, {padded[0]}, {vocabulary});
      CHECK(padded[0].same_bits(plain[0]));
      const Tensor y({1, p.tokens}), padded_y({1, p.tokens});
      run(ENG_OP_LABEL_LOGPROB, {p.x, p.w, p.labels}, {y}, {});
      run(ENG_OP_LABEL_LOGPROB, {p.x, w, p.labels}, {padded_y}, {vocabulary});
      CHECK(padded_y.same_bits(y));
      run(ENG_OP_LABEL_LOGPROB_GRAD, {p.x, p.w, p.labels, dy, with_acc ? acc : none}, {plain[1], plain[2]}, {});
      run(ENG_OP_LABEL_LOGPROB_GRAD, {p.x, w, p.labels, dy, with_acc ? all_acc : none}, {padded[1], padded[2]},
          {vocabulary});
      CHECK((padded[1].same_bits(plain[1]) && starts_with(padded[2], plain[2], rest)));
      if (!with_acc) continue;
      const Tensor both = all_acc.clone();
      run(ENG_OP_LABEL_LOGPROB_GRAD, {p.x, w, p.labels, dy, both}, {padded[1], both}, {vocabulary});
      CHECK(both.same_bits(padded[2]));
      // One id more reads a row that must not be read.
      run(ENG_OP_CROSS_ENTROPY, {p.x, w, p.labels}, {padded[0]}, {{"vocabulary", 38, 0}});
      CHECK(!padded[0].same_bits(plain[0]));
    }
}

TEST_CASE("a label outside the vocabulary is an error that names it", "[cpu]") {
  Problem p(6, 4, 33);
  p.labels.ints()[4] = 33;
  const Device device(1);
  Run run(device, 1, ENG_OP_CROSS_ENTROPY, {p.x, p.w, p.labels}, {Tensor({1})});
  std::string text;
  REQUIRE(run.try_launch(&text) == ENG_INVALID);
  REQUIRE_THAT(text, Catch::Contains("label 33 of token 4"));
}

}  // namespace fast_cross_entropy
