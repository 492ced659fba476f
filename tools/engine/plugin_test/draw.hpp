// SPDX-License-Identifier: Apache-2.0
// Random calls while they are made up.
#pragma once

#include <cmath>

#include "tools/engine/plugin_test/calls.hpp"

namespace eng::plugin_test {

// A call while it is made up.
struct Draw {
  Random& random;
  int32_t f;  // the type of floats
  const Forward& forward;
  std::vector<Array> in;
  std::vector<Attr> attrs;
  uint32_t form = 0;  // see forms_of
  int64_t b = 1, t = 1;
  int32_t out_dtype = 0;  // of init ops

  int64_t pick(int64_t low, int64_t high) { return plugin_test::pick(random, low, high); }
  bool flip() { return random() % 2; }
  // Sizes around those at which vectors, tiles and chunks end.
  int64_t width() {
    static const int64_t some[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 96, 130};
    return some[random() % std::size(some)];
  }
  eng_desc desc(std::initializer_list<int64_t> dims) { return make_desc(f, dims); }
  void floats(std::initializer_list<int64_t> dims, double std = 1) { in.push_back(normal(random, desc(dims), std)); }
  void f32(std::initializer_list<int64_t> dims) { in.push_back(normal(random, make_desc(wide(f), dims))); }
  // Whole numbers: their sums are the same in any order, so their signs are too.
  void wholes(std::initializer_list<int64_t> dims) { in.push_back(integers(random, desc(dims), -2, 2)); }
  void like(size_t k) { in.push_back(normal(random, in[k].desc)); }
  void absent() { in.emplace_back(); }
  void maybe(std::initializer_list<int64_t> dims) { flip() ? floats(dims) : absent(); }
  void tokens(int64_t below) { in.push_back(integers(random, make_desc(ENG_I32, {b, t}), 0, below - 1)); }
  void whole(const char* key, int64_t value) { attrs.push_back({key, value, 0}); }
  void real(const char* key, double value) { attrs.push_back({key, 0, value}); }
  Array& counters(int64_t position = 0) {
    in.emplace_back(make_desc(ENG_I64, {ENG_C_COUNT}));
    int64_t* c = in.back().as<int64_t>();
    c[ENG_C_STEP] = pick(1, 9), c[ENG_C_UPDATES] = pick(0, 3), c[ENG_C_MICRO] = pick(0, 2),
    c[ENG_C_POSITION] = position;
    return in.back();
  }
  float* scalars() {
    in.emplace_back(make_desc(ENG_F32, {ENG_S_COUNT}));
    float* s = in.back().as<float>();
    s[ENG_S_INV_TOKENS] = 0.125f, s[ENG_S_LOSS_SCALE] = 1, s[ENG_S_CLIP] = 0.5f, s[ENG_S_OK] = 1, s[ENG_S_LR] = 0.01f;
    s[ENG_S_LR + 1] = 0.19f, s[ENG_S_LR + 2] = 0.3f;
    return s;
  }
  void rows() { b = pick(1, 3), t = width() % 40 + (form ? 4 : 1); }
  // The weight of a head (rows, h) for v ids, with `more` rows of zeros behind theirs. Returns the number of rows.
  int64_t head(int64_t v, int64_t h, bool more) {
    const int64_t all = more ? v + pick(1, 70) : v;
    if (more) whole("vocabulary", v);
    floats({all, h}, 0.3);
    for (int64_t k = v * h; k < all * h; ++k) in.back().put(k, 0);
    return all;
  }
  void segments() { in.push_back(documents(random, b, t).segments); }
  void positions() { in.push_back(documents(random, b, t).positions); }
  // (B, T) f32, some of them 0
  void loss_weights() {
    in.push_back(normal(random, make_desc(ENG_F32, {b, t})));
    for (int64_t k = 0; k < b * t; ++k) in.back().put(k, pick(0, 4) ? 2 * std::fabs(in.back().at(k)) : 0);
  }
};

using Maker = void (*)(Draw&);
// Makes calls of the ops of parts of a vocabulary (engine/ops_parallel.h); null for other ops.
Maker vocabulary_maker(const std::string& op);
// Makes calls of the ops of delayed scales (engine/ops_fp8.h), which no model uses; null for other ops.
Maker fp8_maker(const std::string& op);

}  // namespace eng::plugin_test
