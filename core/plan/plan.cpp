// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.hpp"

#include "core/base/error.hpp"

namespace eng {

std::string Label::text() const {
  static constexpr const char* names[] = {"step", "init",   "begin",   "forward", "backward",
                                          "loss", "losses", "publish", "gather",  "reduce",
                                          "norm", "update", "eval",    "reset",   "observe"};
  const std::string name = names[static_cast<size_t>(phase)];
  if (of.empty()) return name;
  if (phase == Phase::step) return of;
  return phase == Phase::forward || phase == Phase::backward ? of + " " + name : name + " " + of;
}

View Tensor::whole() const {
  if (!count(desc)) return {0, 0, desc};
  if (ranges.size() != 1 || ranges[0].count != static_cast<uint64_t>(count(desc)))
    throw Error(Exit::bug, name + " is not whole on this rank");
  View v = ranges[0].view;
  v.desc = desc;
  return v;
}

Tensor tensor_at(const std::string& name, const std::string& role, const View& view) {
  const HeldRange all{{0, static_cast<uint64_t>(count(view.desc))}, view};
  return {name, role, view.desc, 0, std::vector<HeldRange>(view.buffer ? 1 : 0, all)};
}

const Program& Plan::program(const std::string& name) const {
  for (const auto& p : programs)
    if (p.name == name) return p;
  throw Error(Exit::bug, "the plan has no program `" + name + "`");
}

const View& Plan::field(const std::string& name) const {
  for (const auto& f : fields)
    if (f.name == name) return f.view;
  throw Error(Exit::bug, "the batch has no field `" + name + "`");
}

const Tensor* Plan::find(const std::string& name, const std::string& role) const {
  for (const auto& t : tensors)
    if (t.name == name && t.role == role) return &t;
  return nullptr;
}

}  // namespace eng
