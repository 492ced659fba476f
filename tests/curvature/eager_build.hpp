// SPDX-License-Identifier: Apache-2.0
// A builder that runs each op when it is emitted, on memory that its user owns.
#pragma once

#include "curvature_kernels.hpp"
#include "engine/job.h"

namespace curvature_test {

class EagerBuild : public eng_build {
 public:
  explicit EagerBuild(const Device& device) : eng_build{&table}, device_(device) {}

  // Elements first .. first + n - 1 of a flat tensor; or the whole of one.
  eng_id add(Tensor& t, int64_t first, int64_t n) { return values_.push_back({&t, first, n, false}), last(); }
  eng_id add(Tensor& t) { return values_.push_back({&t, 0, t.size(), true}), last(); }

 private:
  struct Value {
    Tensor* of;
    int64_t first, n;
    bool whole;
  };
  eng_id last() const { return static_cast<eng_id>(values_.size()); }
  Tensor get(eng_id id) const {
    const Value& v = values_.at(id - 1);
    return v.whole ? *v.of : part(*v.of, v.first, v.n);
  }
  void put(eng_id id, const Tensor& t) {
    const Value& v = values_.at(id - 1);
    const size_t size = dtype_size(v.of->d.dtype);
    std::memcpy(v.of->memory.data() + size_t(v.first) * size, t.memory.data(), size_t(v.n) * size);
  }
  static EagerBuild& self(eng_build* b) { return *static_cast<EagerBuild*>(b); }

  static eng_status status(eng_build*, eng_error*) { return ENG_OK; }
  static eng_status shape(eng_build* b, eng_id id, eng_desc* out, eng_error*) {
    *out = self(b).get(id).d;
    return ENG_OK;
  }
  static eng_status slice(eng_build* b, eng_id id, uint64_t first, uint64_t n, eng_id* out, eng_error*) {
    const Value v = self(b).values_.at(id - 1);
    if (int64_t(first + n) > v.n) throw std::logic_error("a slice is beyond its value");
    self(b).values_.push_back({v.of, v.first + int64_t(first), int64_t(n), false});
    *out = self(b).last();
    return ENG_OK;
  }
  static eng_status emit(eng_build* b, const char* op, const eng_id* in, uint32_t n_in, eng_id* out, uint32_t n_out,
                         const eng_attr* attrs, uint32_t n_attrs, eng_error*) {
    EagerBuild& me = self(b);
    Tensors inputs, outputs;
    Device::InPlace in_place;
    for (uint32_t k = 0; k < n_in; ++k) inputs.push_back(me.get(in[k]));
    for (uint32_t k = 0; k < n_out; ++k) {
      outputs.push_back(me.get(out[k]));
      for (uint32_t i = 0; i < n_in; ++i)
        if (in[i] == out[k]) in_place.push_back({k, i});
    }
    me.device_.run_on(op, inputs, outputs, {attrs, attrs + n_attrs}, in_place);
    for (uint32_t k = 0; k < n_out; ++k) me.put(out[k], outputs[k]);
    return ENG_OK;
  }

  static inline const eng_build_api table = [] {
    eng_build_api t{};
    t.struct_size = sizeof t, t.status = status, t.shape = shape, t.slice = slice, t.emit = emit;
    return t;
  }();
  const Device& device_;
  std::vector<Value> values_;
};

}  // namespace curvature_test
