// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "engine/ops_fp8.h"
#include "tools/engine/plugin_test/draw.hpp"

namespace eng::plugin_test {
namespace {

// `maps` states with `history` steps behind each other: scales are powers of two, or there is none yet.
void states(Draw& d, int64_t maps, int64_t history, std::initializer_list<int64_t> dims) {
  d.in.push_back(normal(d.random, make_desc(ENG_F32, dims)));
  float* const all = d.in.back().as<float>();
  const int64_t columns = 2 + history;
  for (int64_t k = 0; k < maps * 3 * columns; ++k) all[k] = d.pick(0, 5) ? std::fabs(all[k]) : 0;
  for (int64_t row = 0; row < maps * 3; ++row)
    all[row * columns] = d.flip() ? eng_fp8_power(static_cast<int32_t>(d.pick(-9, 9))) : 0;
}

void largest(Draw& d) {
  const int64_t history = d.pick(1, 5), k = d.width(), n = d.width();
  d.rows(), states(d, 1, history, {3, 2 + history});
  d.maybe({d.b, d.t, k}), d.maybe({n, k}), d.floats({d.b, d.t, n});
}

void collect(Draw& d) {
  const int64_t maps = d.pick(1, 9), history = d.pick(1, 5);
  states(d, maps, history, {maps * 3 * (2 + history)}), d.whole("history", history);
}

void roll(Draw& d) {
  const int64_t maps = d.pick(1, 9), history = d.pick(1, 5);
  states(d, maps, history, {maps * 3 * (2 + history)});
  if (d.flip()) {  // of several ranks
    d.in.push_back(normal(d.random, make_desc(ENG_F32, {d.pick(1, 4) * maps * 3})));
    for (int64_t k = 0; k < d.in.back().size(); ++k) d.in.back().put(k, std::fabs(d.in.back().at(k)));
  }
  d.whole("history", history), d.whole("recent", d.flip()), d.whole("margin", d.pick(0, 2));
  d.whole("gradients", d.flip() ? ENG_FP8_E5M2 : ENG_FP8_E4M3);
}

}  // namespace

Maker fp8_maker(const std::string& op) {
  static const std::map<std::string, Maker> all = {
      {ENG_OP_FP8_LARGEST, largest}, {ENG_OP_FP8_COLLECT, collect}, {ENG_OP_FP8_ROLL, roll}};
  const auto found = all.find(op);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace eng::plugin_test
