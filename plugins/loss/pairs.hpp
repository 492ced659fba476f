// SPDX-License-Identifier: Apache-2.0
// Losses of a pair of answers to one question, of which the first is preferred. With s and r the log-probability that
// the model and a frozen reference give to an answer, its sum over the answer's tokens or their mean, w for the
// preferred answer and l for the other, and log sigmoid(z) = -log(1 + exp(-z)):
//
//   dpo    z = beta ((s_w - r_w) - (s_l - r_l)); the loss is -log sigmoid(z). Rafailov et al. 2023, equation 7
//   ipo    ((s_w - r_w) - (s_l - r_l) - 1 / (2 beta))^2. Azar et al. 2023, equation 17
//   simpo  z = beta (s_w - s_l) - margin, s the mean; the loss is -log sigmoid(z). Meng et al. 2024, equation 6
//   orpo   z = o_w - o_l, o = log(p / (1 - p)), p = exp(s), s the mean; the loss is -beta log sigmoid(z) - s_w.
//          Hong et al. 2024, equations 6 and 7
//
// With label smoothing e, -log sigmoid(z) of dpo and simpo becomes -(1 - e) log sigmoid(z) - e log sigmoid(-z): the
// share e of the pairs is assumed to be the wrong way round (Mitchell 2023).
//
// kto needs no pairs. Its answers are each good or bad by themselves; with an answer comes a sequence of the same
// question and the answer to another one, and k = max(0, the mean of s - r over these sequences of a micro-batch), a
// constant:
//
//   kto    z = beta ((s - r) - k) for a good answer, beta (k - (s - r)) for a bad one; the loss is 1 - sigmoid(z),
//   times
//          a weight for good or for bad answers. Ethayarajh et al. 2024, equation 8
#pragma once

#include <cmath>
#include <cstdint>

#ifndef PREFERENCE_INLINE
#define PREFERENCE_INLINE inline  // kernels for GPUs say more
#endif

namespace preference {

enum Kind : int64_t { dpo, ipo, simpo, orpo, kto };

struct Rule {
  int64_t kind = dpo;
  double beta = 0, margin = 0, smoothing = 0;
  bool mean = false;  // s and r are means over the tokens of an answer, not sums
  PREFERENCE_INLINE bool compares() const { return kind == dpo || kind == ipo || kind == kto; }  // with a reference
};

// An answer: s, r, the number of its labels, the mean of their log-probabilities, and the weight of its pair.
struct Answer {
  double s = 0, r = 0, mean = 0, weight = 1;
  int64_t labels = 0;
};

// -log sigmoid(z)
PREFERENCE_INLINE double softplus_of_minus(double z) {
  return z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
}
PREFERENCE_INLINE double sigmoid(double z) {
  return z > 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z));
}

struct Judged {
  double loss = 0;                   // without orpo's beta and -s_w, which are the weights of terms
  double d_chosen = 0, d_other = 0;  // its derivatives by s_w and s_l
  double chosen = 0, other = 0;      // rewards: beta (s - r), or beta s without a reference
};

PREFERENCE_INLINE Judged judge(const Rule& rule, const Answer& w, const Answer& l) {
  const double r_w = rule.compares() ? w.r : 0, r_l = rule.compares() ? l.r : 0;
  Judged out;
  out.chosen = rule.beta * (w.s - r_w), out.other = rule.beta * (l.s - r_l);
  if (rule.kind == ipo) {
    const double more = (w.s - r_w) - (l.s - r_l) - 1 / (2 * rule.beta);
    out.loss = more * more, out.d_chosen = 2 * more, out.d_other = -2 * more;
    return out;
  }
  double z = out.chosen - out.other - rule.margin, by_w = rule.beta, by_l = rule.beta;  // dz/ds_w, -dz/ds_l
  if (rule.kind == orpo) {
    const auto against = [](double s) { return -std::expm1(s); };  // 1 - p
    z = w.s - std::log(against(w.s)) - (l.s - std::log(against(l.s)));
    by_w = 1 / against(w.s), by_l = 1 / against(l.s);
  }
  const double e = rule.smoothing, by_z = e * sigmoid(z) - (1 - e) * sigmoid(-z);
  out.loss = (1 - e) * softplus_of_minus(z) + e * softplus_of_minus(-z);
  out.d_chosen = by_z * by_w, out.d_other = -by_z * by_l;
  return out;
}

struct Alone {
  double loss = 0, d = 0;  // d: the derivative by s
  bool right = false;      // a good answer is above k, a bad one below
};

PREFERENCE_INLINE Alone judge_alone(double beta, double weight, bool good, double more, double k) {  // more: s - r
  const double side = good ? 1 : -1, z = side * beta * (more - k), no = sigmoid(-z);
  return {weight * no, -weight * side * beta * no * sigmoid(z), z > 0};
}

}  // namespace preference
