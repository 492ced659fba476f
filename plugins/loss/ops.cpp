// SPDX-License-Identifier: Apache-2.0
// Shapes, gradient and kernels. They read B x T numbers, so one thread is enough.
#include <algorithm>
#include <array>

#include "call.hpp"

namespace preference {
namespace {

eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] {
    const common::Call c(*call);
    check_pairs(c, false);
    expect(cap >= sums, "the host has no room for the outputs");
    for (uint32_t k = 0; k < sums; ++k) {
      out[k] = {};
      out[k].dtype = c.in[0].dtype, out[k].ndim = 1, out[k].dims[0] = 1;
    }
    *n = sums;
  });
}

eng_status infer_grad(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] {
    check_pairs(common::Call(*call), true);
    expect(cap >= 1, "the host has no room for the output");
    out[0] = call->in[0];
    *n = 1;
  });
}

eng_status gradient(eng_gradient* g, eng_error* error) {
  const eng_gradient_api& api = *g->api;
  std::array<eng_id, pairs_grad_weights + 1> in{};
  for (uint32_t k = 0; k < 3; ++k) in[k] = api.in(g, k);
  for (uint32_t k = 0; k < gradients; ++k) in[3 + k] = api.d_out(g, k);
  in[pairs_grad_weights] = api.in(g, pairs_weights);
  if (api.wants(g, 0)) {
    uint32_t n = 0;
    const eng_attr* attrs = api.attrs(g, &n);
    eng_id made = 0;
    api.emit(g, PREFERENCE_OP_PAIRS_GRAD, in.data(), in.size(), &made, 1, attrs, n, nullptr);
    api.give(g, 0, made);
  }
  return api.status(g, error);
}

eng_status infer_kto(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] {
    const common::Call c(*call);
    check_kto(c, false);
    expect(cap >= kto_sums, "the host has no room for the outputs");
    for (uint32_t k = 0; k < kto_sums; ++k) {
      out[k] = {};
      out[k].dtype = c.in[0].dtype, out[k].ndim = 1, out[k].dims[0] = 1;
    }
    *n = kto_sums;
  });
}

eng_status infer_kto_grad(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] {
    check_kto(common::Call(*call), true);
    expect(cap >= 1, "the host has no room for the output");
    out[0] = call->in[0];
    *n = 1;
  });
}

eng_status gradient_kto(eng_gradient* g, eng_error* error) {
  const eng_gradient_api& api = *g->api;
  const eng_id in[6] = {api.in(g, 0), api.in(g, 1),    api.in(g, 2),
                        api.in(g, 3), api.d_out(g, 0), api.in(g, kto_weights)};
  if (api.wants(g, 0) && in[4]) {
    uint32_t n = 0;
    const eng_attr* attrs = api.attrs(g, &n);
    eng_id made = 0;
    api.emit(g, PREFERENCE_OP_KTO_GRAD, in, 6, &made, 1, attrs, n, nullptr);
    api.give(g, 0, made);
  }
  return api.status(g, error);
}

constexpr eng_op make_op(const char* id, uint32_t least, uint32_t most, decltype(eng_op::infer) infer,
                         decltype(eng_op::grad) grad) {
  eng_op op{};
  op.struct_size = sizeof op, op.id = id, op.min_in = least, op.max_in = most, op.infer = infer, op.grad = grad;
  return op;
}
const eng_op pairs_op = make_op(PREFERENCE_OP_PAIRS, 2, pairs_weights + 1, infer, gradient);
const eng_op pairs_grad_op = make_op(PREFERENCE_OP_PAIRS_GRAD, 2, pairs_grad_weights + 1, infer_grad, nullptr);
const eng_op kto_op = make_op(PREFERENCE_OP_KTO, 4, kto_weights + 1, infer_kto, gradient_kto);
const eng_op kto_grad_op = make_op(PREFERENCE_OP_KTO_GRAD, 5, kto_grad_weights + 1, infer_kto_grad, nullptr);
const eng_op* const op_list[] = {&pairs_op, &pairs_grad_op, &kto_op, &kto_grad_op};

// The inputs of an op, as all kernels have them.
class Pairs {
 public:
  Pairs(const common::Call& c, const Rule& rule, size_t weights)  // the number of that input
      : wide_(c.in[0].dtype == ENG_F64),
        rows_(c.in[0].dims[0]),
        length_(c.in[0].dims[1]),
        rule_(rule),
        weights_(weights) {}

 protected:
  double read(const void* numbers, int64_t k) const {
    return wide_ ? static_cast<const double*>(numbers)[k] : double{static_cast<const float*>(numbers)[k]};
  }
  void write(void* numbers, int64_t k, double value) const {
    if (wide_)
      static_cast<double*>(numbers)[k] = value;
    else
      static_cast<float*>(numbers)[k] = static_cast<float>(value);
  }
  Answer answer(const common::Args& a, int64_t row) const {
    const void* logprobs = a.in<char>(0);
    const auto* labels = a.in<int32_t>(1);
    const auto *reference = a.in<float>(2), *weights = a.in<float>(weights_);
    Answer out;
    if (weights) out.weight = 0;
    for (int64_t k = row * length_; k < (row + 1) * length_; ++k) {
      if (labels[k] == ignored) continue;
      ++out.labels;
      out.s += read(logprobs, k);
      if (reference) out.r += double{reference[k]};
      if (weights) out.weight += double{weights[k]};
    }
    const double n = static_cast<double>(out.labels);
    if (out.labels) out.mean = out.s / n;
    if (out.labels && rule_.mean) out.s = out.mean, out.r /= n;
    return out;
  }
  // use(row of the preferred answer, both answers): pairs of which one has no label are left out.
  template <class Use>
  void each(const common::Args& a, const Use& use) const {
    for (int64_t row = 0; row + 1 < rows_; row += 2) {
      const Answer w = answer(a, row), l = answer(a, row + 1);
      if (w.labels && l.labels) use(row, w, l);
    }
  }

  const bool wide_;
  const int64_t rows_, length_;
  const Rule rule_;
  const size_t weights_;
};

struct PairsKernel : Pairs {
  static constexpr const char* op = PREFERENCE_OP_PAIRS;
  static void check(const common::Call& c) { check_pairs(c, false); }
  explicit PairsKernel(const common::Call& c) : Pairs(c, rule_of(c), pairs_weights) {}
  void run(const common::Args& a) const {
    std::array<double, sums> sum{};
    each(a, [&](int64_t, const Answer& w, const Answer& l) {
      const Judged judged = judge(rule_, w, l);
      const std::array<double, sums> add = {
          w.weight * judged.loss, w.weight * -w.mean,           judged.chosen,
          judged.other,           judged.chosen - judged.other, judged.chosen > judged.other ? 1.0 : 0.0};
      for (uint32_t k = 0; k < sums; ++k) sum[k] += add[k];
    });
    for (uint32_t k = 0; k < sums; ++k) write(a.out<char>(k), 0, sum[k]);
  }
};

struct PairsGradKernel : Pairs {
  static constexpr const char* op = PREFERENCE_OP_PAIRS_GRAD;
  static void check(const common::Call& c) { check_pairs(c, true); }
  explicit PairsGradKernel(const common::Call& c) : Pairs(c, rule_of(c), pairs_grad_weights) {}
  void run(const common::Args& a) const {
    void* const out = a.out<char>(0);
    for (int64_t k = 0; k < rows_ * length_; ++k) write(out, k, 0);
    const auto by = [&](size_t k) { return a.in<char>(3 + k) ? read(a.in<char>(3 + k), 0) : 0.0; };
    const double by_loss = by(0), by_nll = by(1), by_chosen = rule_.beta * (by(2) + by(4)),
                 by_other = rule_.beta * (by(3) - by(4));
    const auto* labels = a.in<int32_t>(1);
    each(a, [&](int64_t row, const Answer& w, const Answer& l) {
      const Judged judged = judge(rule_, w, l);
      const auto n_w = static_cast<double>(w.labels), n_l = static_cast<double>(l.labels);
      const double loss = w.weight * by_loss, nll = w.weight * by_nll;
      const double of_w = (loss * judged.d_chosen + by_chosen) / (rule_.mean ? n_w : 1.0) - nll / n_w;
      const double of_l = (loss * judged.d_other + by_other) / (rule_.mean ? n_l : 1.0);
      for (int64_t k = row * length_; k < (row + 2) * length_; ++k)
        if (labels[k] != ignored) write(out, k, k < (row + 1) * length_ ? of_w : of_l);
    });
  }
};

class Kto : public Pairs {
 public:
  Kto(const common::Call& c, size_t weights) : Pairs(c, KtoRule(c).rule(), weights), kto_(c) {}

 protected:
  // use(row of the answer, its labels, what is said of it)
  template <class Use>
  double each_alone(const common::Args& a, const Use& use) const {
    double sum = 0, count = 0;
    each(a, [&](int64_t, const Answer&, const Answer& other) { sum += other.s - other.r, count += 1; });
    const double k = count > 0 ? std::max(0.0, sum / count) : 0.0;
    each(a, [&](int64_t row, const Answer& answer, const Answer&) {
      const bool good = a.in<float>(3)[row * length_] != 0;
      const double weight = answer.weight * (good ? kto_.good : kto_.bad);
      use(row, judge_alone(kto_.beta, weight, good, answer.s - answer.r, k));
    });
    return k * count;
  }

 private:
  const KtoRule kto_;
};

struct KtoKernel : Kto {
  static constexpr const char* op = PREFERENCE_OP_KTO;
  static void check(const common::Call& c) { check_kto(c, false); }
  explicit KtoKernel(const common::Call& c) : Kto(c, kto_weights) {}
  void run(const common::Args& a) const {
    double loss = 0, right = 0;
    const double k = each_alone(a, [&](int64_t, const Alone& one) { loss += one.loss, right += one.right ? 1 : 0; });
    write(a.out<char>(0), 0, loss), write(a.out<char>(1), 0, k), write(a.out<char>(2), 0, right);
  }
};

struct KtoGradKernel : Kto {
  static constexpr const char* op = PREFERENCE_OP_KTO_GRAD;
  static void check(const common::Call& c) { check_kto(c, true); }
  explicit KtoGradKernel(const common::Call& c) : Kto(c, kto_grad_weights) {}
  void run(const common::Args& a) const {
    void* const out = a.out<char>(0);
    for (int64_t k = 0; k < rows_ * length_; ++k) write(out, k, 0);
    const double by_loss = read(a.in<char>(4), 0);
    const auto* labels = a.in<int32_t>(1);
    each_alone(a, [&](int64_t row, const Alone& one) {
      for (int64_t k = row * length_; k < (row + 1) * length_; ++k)
        if (labels[k] != ignored) write(out, k, by_loss * one.d);
    });
  }
};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 4, .ops = op_list};
const eng_kernels kernels = common::kernel_table<PairsKernel, PairsGradKernel, KtoKernel, KtoGradKernel>;

}  // namespace preference
