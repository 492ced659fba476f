// SPDX-License-Identifier: Apache-2.0
// The faults of the hostile plugin in the hands of `engine plugins test`.
#include <algorithm>
#include <set>

#include "hostile.hpp"

namespace hostile {
namespace {

// Faults that `engine plugins test` cannot find, and why.
const std::map<std::string, const char*> out_of_reach = {
    {"precision: other activations", "no fault of the policy: a kernel does not have the type"},
    // The fault is told by the name of the file that is inspected.
    {"inspect larger", "chosen by a path"},
    {"inspect huge", "chosen by a path"},
    {"fail data.inspect", "chosen by a path"},
    {"mute data.inspect", "chosen by a path"},
};

// The kind that a fault belongs to, for `engine plugins test`; with the name where there are several.
Args subject(const Case& c) {
  std::string fault = c.fault;
  for (const char* how : {"fail ", "mute ", "long ", "odd ", "twice ", "code "})
    if (fault.rfind(how, 0) == 0) fault = fault.substr(std::string(how).size());
  const auto begins = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* w) { return fault.rfind(w, 0) == 0; });
  };
  switch (c.who) {
    case in_source:
    case in_inspect:
      return {"--kind", "eng.data/1"};
    case in_strategy:
      return {"--kind", "eng.zero/1"};
    case in_tokenizer:
      return {"--kind", "eng.tokenizer/1"};
    case between_ranks:
      return {"--kind", "eng.comm/1"};
    case on_tier:
      return {"--kind", "eng.tier/1"};
    case on_device:
      if (begins({"device kernel"})) return {"--kind", "eng.kernels/1", "--name", "void"};
      return {"--kind", "eng.device/1"};
    default:
      // The effect of an op on a model is seen where the model is run.
      if (begins({"infer: negative", "ops: must", "workspace: a tera", "step", "op.step"}))
        return {"--kind", "eng.model/1"};
      if (begins({"infer", "flops", "grad", "op.", "ops"})) return {"--kind", "eng.ops/1"};
      if (begins({"workspace", "kernel"})) return {"--kind", "eng.kernels/1", "--name", "cpu"};
      if (begins({"rate", "schedule"})) return {"--kind", "eng.schedule/1"};
      if (begins({"states", "scalars", "update", "optimizer"})) return {"--kind", "eng.optimizer/1"};
      return {"--kind", begins({"precision"}) ? "eng.precision/1" : "eng.model/1"};
  }
}

// The laws that fail in the test of the plugin.
std::set<std::string> verdicts(const Scratch& place, const Args& of, const std::string& fault) {
  Args args = {"plugins", "test", HOSTILE_DIR "/hostile.eng.so", "--rounds", "1", "--json"};
  args.insert(args.end(), of.begin(), of.end());
  args.push_back((of[1] == "eng.tokenizer/1" ? "tokenizer=/of/" : "fault=") + fault);
  const Result r = engine(place, args);
  const Json all = Json::parse(r.out, nullptr, false);
  INFO(r.err);
  REQUIRE(all.is_object());
  CHECK(r.exit == (all.at("failed") == 0 ? 0 : 3));
  std::set<std::string> out;
  for (const Json& v : all.at("verdicts"))
    if (v.at("verdict") == "fail")
      out.insert(v.at("check").get<std::string>() + ": " + v.at("text").get<std::string>());
  return out;
}

}  // namespace

void check_found(const Case& c) {
  if (out_of_reach.count(c.fault)) return;
  const Scratch place;
  static std::map<Args, std::set<std::string>> without;
  const Args of = subject(c);
  if (!without.count(of)) without[of] = verdicts(place, of, "none");
  const auto with = verdicts(place, of, c.fault);
  INFO("engine plugins test: " << c.fault);
  CHECK(std::any_of(with.begin(), with.end(), [&](const std::string& one) { return !without[of].count(one); }));
}

}  // namespace hostile
