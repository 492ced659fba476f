// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/plan/planner.hpp"

namespace eng {
namespace {

template <class Table>
std::shared_ptr<void> create(const Table& table, const Section& section, const std::string& where) {
  Options options(section);
  Sink sink;
  void* self = nullptr;
  sink.check(table.create(options.get(), &self, sink.get()), Exit::usage, where);
  return std::shared_ptr<void>(self, [destroy = table.destroy](void* p) { destroy(p); });
}

}  // namespace

Precision make_precision(const std::string& name, const eng_axis& table, const Section& section) {
  return {name, table, create(table, section, "[precision] " + name)};
}

Optimizer make_optimizer(const std::string& name, const eng_optimizer& table, const Section& section) {
  return {name, table, create(table, section, "[optimizer] " + name)};
}

int32_t Precision::dtype(int32_t role, const eng_unit* unit) const {
  eng_view view{sizeof(eng_view), ENG_F32, 0, 0, unit ? unit->count : 0};
  eng_view before = view;
  Sink sink;
  sink.check(table.place(self.get(), unit, 0, role, &view, sink.get()), Exit::environment, "precision " + name);
  if (view.tier != before.tier || view.part != before.part || view.count != before.count)
    throw Error(Exit::environment, fmt::format("precision {} changed another axis than dtype of role {}", name, role));
  return view.dtype;
}

std::vector<float> Optimizer::scalars(uint64_t update) const {
  float out[7];
  uint32_t n = 0;
  Sink sink;
  sink.check(table.scalars(self.get(), update, out, 7, &n, sink.get()), Exit::environment, "optimizer " + name);
  if (n > 7) throw Error(Exit::environment, "optimizer " + name + " gave more than 7 scalars");
  return std::vector<float>(out, out + n);
}

}  // namespace eng
