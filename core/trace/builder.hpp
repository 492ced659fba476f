// SPDX-License-Identifier: Apache-2.0
// The host's side of eng_build: turns calls of a plugin into virtual calls, keeps the first error.
#pragma once

#include <string>
#include <vector>

#include "core/trace/graph.hpp"
#include "engine/build.h"

namespace eng {

struct World;

// A parameter as declared.
struct Parameter {
  std::string name;
  eng_desc desc{};
  uint32_t flags = 0;  // ENG_PARAM_*
  std::string init_op;
  Attrs init;
};

// Derive and override what is legal in a phase; the rest refuses with a clear text.
class Builder : public eng_build {
 public:
  Builder();
  virtual ~Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  // Throws the first error that a call reported, prefixed with `where`.
  void check(const std::string& where) const;

  virtual eng_desc shape(Id value) = 0;
  virtual Id param(Parameter parameter);
  virtual void block(std::string name, uint32_t tmpl, std::vector<Id> params);
  virtual Id batch(const std::string& name);
  virtual Id constant(const eng_desc& desc, const void* data);
  virtual World world();
  virtual Id group(std::vector<uint32_t> ranks);
  virtual Id part(const eng_part& part);
  virtual Id slice(Id value, uint64_t first, uint64_t count);
  // out[k] is 0 or the value to write into; returns the ids.
  virtual std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) = 0;

  eng_status status = ENG_OK;
  std::string error;

 protected:
  [[noreturn]] static void refuse(const char* what);
};

}  // namespace eng
