// SPDX-License-Identifier: Apache-2.0
// The host's side of eng_build: turns a plugin's calls into virtual calls and keeps the first error.
#pragma once

#include "core/base/error.hpp"
#include "core/base/range.hpp"
#include "core/trace/graph.hpp"
#include "engine/build.h"

namespace eng {

struct World {
  uint32_t rank = 0, size = 1;
  uint32_t local_rank = 0, local_size = 1;  // among the ranks of this machine
};

// The range of a tensor that the ranks of a tensor group divide: number `index` of `count` equal ones along a
// dimension, or of each of its `groups` equal parts, or of each of some unequal parts along dimension 0.
struct Divided {
  uint32_t dim = 0, index = 0, count = 1, groups = 1;
  std::vector<uint64_t> runs = {};  // of unequal parts: the elements that this rank has of each
};

// A flag of the engine's own, beside ENG_PARAM_*: the parameter is one of the reference model ([reference]). Its values
// come from elsewhere, so checkpoints do not store them.
constexpr uint32_t of_reference = 1U << 31;

// A parameter as the model declared it.
struct Parameter {
  std::string name;
  eng_desc desc{};
  uint32_t flags = 0;  // ENG_PARAM_*
  std::string init_op;
  Attrs init;
  bool frozen = false;        // keeps its value in training: no gradient, no state, no update
  std::string added_by = {};  // the transform that declared it; "": the model
  bool packed = false;        // the precision policy may keep it in a packed type (engine/policy.h)
  uint32_t zero_rows = 0;     // that follow its own in memory
  Divided cut = {};           // what `desc` is of the whole
  bool two_stages = false;    // the first and the last stage of a pipeline have gradients of it each
  // A shape of this rank's range as that of the whole.
  eng_desc whole(eng_desc of) const { return of.dims[cut.dim] *= cut.count, of; }
  eng_desc whole() const { return whole(desc); }
  // Elements that are neighbours in the whole, too.
  uint64_t run() const {
    uint64_t n = 1;
    for (uint32_t d = cut.dim; d < desc.ndim; ++d) n *= static_cast<uint64_t>(desc.dims[d]);
    return n / cut.groups;
  }
  // The place in the whole of element `at` of a divided one's, and how many from it on are neighbours there, too.
  Range place(uint64_t at) const {
    uint64_t before = 0, n = run();
    for (size_t k = 0; k < cut.runs.size() && at >= (n = cut.runs[k]); ++k) at -= n, before += n * cut.count;
    return {before + (at / n * cut.count + cut.index) * n + at % n, n - at % n};
  }
  // Its shape in memory.
  eng_desc held() const {
    eng_desc out = desc;
    out.dims[0] += zero_rows;
    return out;
  }
};

// Copies a list from a plugin. Throws std::runtime_error if it is NULL and n > 0, or if an attribute has no key.
template <class To, class From>
std::vector<To> list_of(const From* list, uint32_t n, const char* what) {
  need(list || !n, "{} is NULL, but its count is {}", what, n);
  std::vector<To> out;
  for (uint32_t k = 0; k < n; ++k)
    if constexpr (std::is_same_v<From, eng_attr>) {
      need(list[k].key, "attribute {} has no key", k);
      out.push_back({list[k].key, list[k].i, list[k].f});
    } else {
      out.push_back(list[k]);
    }
  return out;
}
// Refuses a plugin's struct_size below `first`, that of version 1.0.
inline void check_size(const char* name, uint32_t given, size_t first) {
  need(given >= first, "{} states struct_size {}: the minimum is {}", name, given, first);
}

// Derived classes override what is legal in their phase. Everything else throws an Error that says so.
class Builder : public eng_build {
 public:
  Builder();
  virtual ~Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  // Throws the first error that a call reported, prefixed with `where`.
  void check(const std::string& where) const;
  // Calls a function of a plugin that gets this builder. Throws that error, or Error(exit) with what it answers.
  template <class F, class... Args>
  void call(const std::string& where, Exit exit, F function, Args... args) const {
    Sink sink;
    const eng_status status = function(args..., sink.get());
    check(where);
    sink.check(status, exit, where);
  }

  virtual eng_desc shape(Id value) = 0;
  virtual Id param(Parameter) { refuse("declaring a parameter"); }
  virtual void block(std::string /*name*/, uint32_t /*tmpl*/, std::vector<Id> /*params*/) {
    refuse("declaring a block");
  }
  virtual Id batch(const std::string& /*name*/) { refuse("asking for the batch"); }
  virtual bool offers(const std::string& /*name*/) { refuse("asking for the batch"); }
  virtual Id constant(const eng_desc&, const void* /*data*/) { refuse("making a constant"); }
  virtual World world() { refuse("asking for the world"); }
  virtual Id group(std::vector<uint32_t> /*ranks*/) { refuse("making a group"); }
  virtual Id part(const eng_part&) { refuse("making a part"); }
  virtual Id slice(Id, uint64_t /*first*/, uint64_t /*count*/) { refuse("taking a slice"); }
  virtual void term(Id /*value*/, std::string /*name*/, double /*weight*/, uint32_t /*per*/) {
    refuse("naming a term of the loss");
  }
  virtual Id loss(Id /*hidden*/, Id /*weight*/) { refuse("asking for the loss"); }
  // out[k] is the value to write into, or 0 for a new one. Returns the ids of all outputs.
  virtual std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) = 0;

  eng_status status = ENG_OK;
  std::string error, help;
  Exit exit = Exit::environment;  // of the error

 protected:
  [[noreturn]] static void refuse(const char* what);
};

}  // namespace eng
