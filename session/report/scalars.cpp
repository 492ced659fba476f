// SPDX-License-Identifier: Apache-2.0
#include "session/report/scalars.hpp"

namespace eng {
namespace {

void add(const std::string& prefix, const Json& object, std::vector<std::pair<std::string, double>>& out) {
  for (const Json::Member& member : object.members()) {
    if (member.value.is_object())
      add(prefix + member.key + "/", member.value, out);
    else if (member.value.is_number())
      out.emplace_back(prefix + member.key, member.value.number());
  }
}

}  // namespace

std::vector<std::pair<std::string, double>> scalars_of(const Json& line) {
  std::vector<std::pair<std::string, double>> all, out;
  if (line.is_object()) add("", line, all);
  for (auto& one : all)
    if (one.first != "v" && one.first != "step" && one.first != "attempt") out.push_back(std::move(one));
  return out;
}

}  // namespace eng
