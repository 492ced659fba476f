// SPDX-License-Identifier: Apache-2.0
// Runs `engine plugins test` and reads its verdicts.
#pragma once

#include "../cli/harness.hpp"

namespace plugin_test {

using namespace cli;

struct Tried {
  Result result;
  Json verdicts = Json::array();
  // The texts of the checks that failed, each with what it is of and its name.
  std::vector<std::string> failed() const {
    std::vector<std::string> out;
    for (const Json& v : verdicts)
      if (v.at("verdict") == "fail")
        out.push_back(v.at("of").get<std::string>() + ", " + v.at("check").get<std::string>() + ": " +
                      v.at("text").get<std::string>());
    return out;
  }
  bool failed(const std::string& part) const {
    const auto all = failed();
    return std::any_of(all.begin(), all.end(), [&](const std::string& one) { return has(one, part); });
  }
  std::string text() const {
    std::string out = result.err;
    for (const std::string& one : failed()) out += one + "\n";
    return out;
  }
};

inline Tried try_plugin(const Scratch& place, const fs::path& file, const Args& more = {},
                        const Args& environment = {}) {
  Args args = {"plugins", "test", file.string(), "--json"};
  args.insert(args.end(), more.begin(), more.end());
  Limits limits;
  limits.seconds *= 3;  // a file with many models
  limits.more = environment;
  Tried out{engine(place, args, limits)};
  if (const Json all = Json::parse(out.result.out, nullptr, false); all.is_object()) out.verdicts = all.at("verdicts");
  return out;
}

}  // namespace plugin_test
