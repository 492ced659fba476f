// SPDX-License-Identifier: Apache-2.0
// A builder that computes every op at once, in double, the plain way: what a model means, without the engine.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/build.h"

namespace models {

struct Value {
  eng_desc desc{};
  std::vector<double> data;
};

struct Param {
  std::string name, init_op;
  std::map<std::string, double> init;
  std::vector<int64_t> dims;
  uint32_t flags;
};

struct Block {
  std::string name;
  uint32_t tmpl;
  std::vector<eng_id> params;
};

struct Emitted {
  std::string op;
  std::vector<eng_id> in, out;
  std::map<std::string, eng_attr> attrs;
};

// A mistake to be planted: a name that some op asks for. "" is none.
class FakeBuild : public eng_build {
 public:
  explicit FakeBuild(std::string fault = "");

  eng_id add(Value value);
  const Value& value(eng_id id) const { return values_.at(id); }
  void clear_values() { values_.clear(), emitted.clear(), constants.clear(); }

  std::vector<Param> params;  // id - 1 is the index
  std::vector<Block> blocks;
  std::map<std::string, Value> batch;  // by name
  std::vector<Emitted> emitted;
  std::vector<eng_id> constants;
  bool compute = true;  // false: ops are only recorded, results have no value
  eng_status state = ENG_OK;
  std::string text;

 private:
  friend struct FakeCalls;
  eng_status fail(eng_status code, const std::string& why, eng_error* error);
  std::vector<Value> run(const Emitted& op) const;

  std::string fault_;
  std::map<eng_id, Value> values_;
};

}  // namespace models
