// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "engine/ops_parallel.h"
#include "tools/engine/plugin_test/draw.hpp"

namespace eng::plugin_test {
namespace {

// Rows of a table of `whole` ones, of which the first is `first`.
struct Part {
  int64_t whole, rows, first;
  explicit Part(Draw& d) : whole(d.width() + 1), rows(d.pick(1, whole)), first(d.pick(0, whole - rows)) {}
};

void lookup(Draw& d, bool grad) {
  d.rows();
  const Part part(d);
  const int64_t h = d.width();
  d.tokens(part.whole);
  if (grad)
    d.floats({d.b, d.t, h}), d.maybe({part.rows, h}), d.whole("rows", part.rows);
  else
    d.floats({part.rows, h});
  d.whole("first", part.first);
}

void labels(Draw& d, int64_t below) {
  d.tokens(below);
  for (int64_t k = 0; k < d.in.back().size(); ++k)
    if (d.pick(0, 4) == 0) d.in.back().put(k, -100);
}

void head(Draw& d, bool grad) {
  d.rows();
  const Part part(d);
  const int64_t h = d.width();
  d.floats({d.b, d.t, h}), d.floats({part.rows, h}, 0.3), labels(d, part.whole);
  d.whole("first", part.first), d.whole("whole", part.whole);
  if (!grad) return;
  const bool no_dw = d.pick(0, 3) == 0;
  d.f32({d.b, d.t}), d.scalars();
  no_dw ? d.absent() : d.maybe({part.rows, h});
  d.whole("no_dw", no_dw);
  if (d.form & 1) d.real("z_loss", 0.5), d.real("weight", 0.7);
  if (d.form & 2) d.loss_weights();
}

void loss(Draw& d) {
  d.rows();
  const int64_t members = d.pick(1, 5);
  d.f32({members * 2 * d.b * d.t}), labels(d, d.width()), d.whole("members", members);
  if (d.form & 1) d.real("z_loss", 0.5);
  if (d.form & 2) d.loss_weights();
}

}  // namespace

Maker vocabulary_maker(const std::string& op) {
  static const std::map<std::string, Maker> all = {
      {ENG_OP_EMBEDDING_PART, [](Draw& d) { lookup(d, false); }},
      {ENG_OP_EMBEDDING_PART_GRAD, [](Draw& d) { lookup(d, true); }},
      {ENG_OP_VOCABULARY_SCORES, [](Draw& d) { head(d, false); }},
      {ENG_OP_VOCABULARY_LOSS, loss},
      {ENG_OP_VOCABULARY_GRAD, [](Draw& d) { head(d, true); }},
  };
  const auto found = all.find(op);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace eng::plugin_test
