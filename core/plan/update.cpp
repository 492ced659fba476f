// SPDX-License-Identifier: Apache-2.0
#include "core/plan/update.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "engine/ops.h"

namespace eng {

void Update::emit() {
  const View partials = norm_partials();
  emit_.label("norm");
  emit_.action(op(ENG_OP_FINISH), {partials, plan_.table, plan_.scalars, plan_.counters},
               {plan_.scalars, plan_.counters}, {{{"max_norm", 0, r_.grad_clip}}});
  const std::vector<Home> reduced = s_.grad;
  for (size_t u = 0; u < homes().units(); ++u) {
    // A whole update needs the whole gradient: two units' at a time.
    if (s_.grad[u].part && !s_.master[u].part) {
      if (u > 1) emit_.after_users(s_.grad[u - 2].view);
      s_.grad[u] = {s_.gather("gradient", Line::gradients, ENG_ROLE_GRAD, u, reduced[u])};
    }
    emit_.label("update " + homes().unit(u).name);
    unit(u);
    if (!s_.publishes_late(u)) s_.publish(u);
  }
}

// The sum of squares of every chunk, in the order of the units. Where gradients live in parts each rank brings its
// own chunks and zeros for the others': x + 0 is x in any order.
View Update::norm_partials() {
  emit_.label("norm");
  uint64_t chunks = 0;
  bool parts = false;
  for (size_t u = 0; u < homes().units(); ++u)
    chunks += homes().unit(u).count / chunk, parts = parts || s_.grad[u].part;
  // Units are padded to a chunk for each rank: every rank can fold as many.
  View partials = emit_.transient("norm partials", Line::step, States::flat(ENG_F32, chunks));
  if (parts) emit_.zero(partials);
  uint64_t at = 0;
  for (size_t u = 0; u < homes().units(); at += homes().unit(u).count / chunk, ++u) {
    const auto& holders = plan_.ranks.group(plan_.ranks.part(s_.grad[u].part).group);
    // Of several groups that hold all of it, one counts; what everybody holds is the first rank's to bring.
    const bool whole = !s_.grad[u].part,
               mine = whole ? !parts || !plan_.ranks.world.rank : std::count(holders.begin(), holders.end(), 0u) > 0;
    if (!mine) continue;
    for (const Range& piece : homes().pieces(u, whole)) {
      const Range kept = homes().kept(s_.grad[u], piece);
      emit_.action(op(ENG_OP_SUM_SQUARES), {homes().view(s_.grad[u], piece)},
                   {slice(partials, at + kept.first / chunk, kept.count / chunk)});
    }
  }
  if (!parts) return partials;
  View all = emit_.transient("norm partials", Line::step, partials.desc);
  s_.between_ranks([&] {
    const View own =
        emit_.transient("norm partials", Line::step, States::flat(ENG_F32, chunks / plan_.ranks.world.size));
    const View rows = s_.collective(ENG_OP_ALL_TO_ALL, partials, {});
    emit_.action(op(ENG_OP_FOLD), {rows}, {own}, {{{"rows", int64_t{plan_.ranks.world.size}, 0}}});
    s_.collective(ENG_OP_ALL_GATHER, own, all);
  });
  return all;
}

// One update per run of parameters with equal flags, padding included, as far as this rank keeps it.
void Update::unit(size_t u) {
  const Unit& unit = homes().unit(u);
  for (const Range& piece : homes().pieces(u, !s_.master[u].part)) {
    const Range kept = homes().kept(s_.master[u], piece);
    for (size_t k = 0; k < unit.params.size();) {
      const uint32_t flags = model_.params[unit.params[k]].flags;
      const uint64_t begin = homes().padded(unit.params[k]).first;
      uint64_t end = begin;
      for (; k < unit.params.size() && model_.params[unit.params[k]].flags == flags; ++k) {
        const Range r = homes().padded(unit.params[k]);
        end = r.first + r.count;
      }
      const uint64_t first = std::max(begin, kept.first), last = std::min(end, kept.first + kept.count);
      if (first < last) run(u, piece, flags, first - kept.first, last - first);
    }
  }
}

// Of what is kept of a piece, n elements from `first`.
void Update::run(size_t u, const Range& piece, uint32_t flags, uint64_t first, uint64_t n) {
  EmittingBuilder builder(emit_, plan_.ranks, "update " + homes().unit(u).name);
  const Range kept = homes().kept(s_.master[u], piece);
  const auto add = [&](const Home& home) {
    // A state that lives whole beside a master in parts.
    const uint64_t skip = kept.first - homes().kept(home, piece).first;
    return builder.add(slice(homes().view(home, piece), skip + first, n), true);
  };
  std::vector<eng_id> states;
  for (const auto& state : s_.optimizer) states.push_back(add(state[u]));
  eng_update update{sizeof(eng_update),
                    flags,
                    add(s_.master[u]),
                    add(s_.grad[u]),
                    0,
                    builder.add(plan_.scalars),
                    states.data(),
                    static_cast<uint32_t>(states.size()),
                    0};
  ask("optimizer " + r_.optimizer->name, builder,
      [&](eng_error* error) { return r_.optimizer->table.update(r_.optimizer->self.get(), &builder, &update, error); });
}

}  // namespace eng
