// SPDX-License-Identifier: Apache-2.0
#include "core/plan/initial.hpp"

#include "engine/ops.h"

namespace eng {
namespace {

class Initial {
 public:
  Initial(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, Moves& moves)
      : r_(request), plan_(plan), emit_(emitter), homes_(homes), moves_(moves) {}

  void emit() {
    emit_.begin_whole("init");
    emit_.label(Phase::init);
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const size_t u = homes_.unit_of(p);
      const Home& home = homes_.master[u];
      const bool narrow = home.view.desc.dtype != homes_.initial[u];
      // Many pieces of rows are cut from rows that are made whole.
      const Parameter& own = model_.params[p];
      const bool columns = own.cut.count > 1 && static_cast<uint64_t>(count(own.desc)) / own.run() > 64;
      for (const HeldRange& held : homes_.ranges(home, p, columns))
        for (const HeldRange& range : through_memory(held, home, narrow || columns)) {
          Attrs attrs = model_.params[p].init;
          for (const Attr& more : {Attr{"seed", r_.seed, 0}, {"stream", p, 0}, {"first", int64_t(range.first), 0}})
            attrs.list.push_back(more);
          const bool stored = plan_.in_storage(range.view);
          const uint32_t place = plan_.memory_of(plan_.buffer(range.view.buffer).arena);
          const View at = stored ? emit_.passing("initial values", Line::update, range.view.desc, place) : range.view;
          const uint64_t rest = home.packed ? (chunk - range.count % chunk) % chunk : 0;  // of the last chunk
          const eng_desc whole = flat(homes_.initial[u], range.count + rest);
          const View made = narrow ? emit_.passing("initial values", Line::update, whole, place) : at;
          if (columns)
            init_columns(p, range, made, std::move(attrs));
          else
            emit_.action(op(model_.params[p].init_op), {}, {slice(made, 0, range.count)}, std::move(attrs));
          if (narrow) emit_.zero(slice(made, range.count, rest)), moves_.narrow(u, made, at);
          if (stored) emit_.copy(at, range.view);
        }
    }
    for (size_t u = 0; u < homes_.units(); ++u) moves_.publish(u);
    // After loading a checkpoint: weights from their masters.
    emit_.begin_whole("publish");
    for (size_t u = 0; u < homes_.units(); ++u) moves_.publish(u);
  }

 private:
  // Makes the rows of the whole parameter that reach into a range of this rank's columns, and copies these.
  void init_columns(uint32_t p, const Range& range, const View& made, Attrs attrs) {
    const Parameter& param = model_.params[p];
    const uint64_t run = param.run(), first = range.first / run, rows = (range.end() + run - 1) / run - first;
    const uint32_t place = plan_.buffer(made.buffer).arena;
    const auto temp = [&](uint64_t columns) {
      return emit_.transient("initial rows", Line::update,
                             make_desc(made.desc.dtype, {int64_t(rows), int64_t(columns)}), place);
    };
    attrs.list.back().i = static_cast<int64_t>(first * run * param.cut.count);
    const View all = temp(run * param.cut.count);
    emit_.action(op(param.init_op), {}, {flat_of(all)}, std::move(attrs));
    std::vector<View> parts;
    for (uint32_t k = 0; k < param.cut.count; ++k) parts.push_back(temp(run));
    emit_.action(op(ENG_OP_SPLIT), {all}, parts, {{{"axis", 1, 0}, {"parts", param.cut.count, 0}}});
    emit_.copy(slice(flat_of(parts[param.cut.index]), range.first - first * run, range.count),
               slice(made, 0, range.count));
  }
  static View flat_of(const View& v) { return reshape(v, flat(v.desc.dtype, static_cast<uint64_t>(count(v.desc)))); }

  // Ranges in storage, and those that are packed or rounded, are made piece by piece.
  std::vector<HeldRange> through_memory(const HeldRange& held, const Home& home, bool narrow) const {
    std::vector<HeldRange> out;
    const bool cut = narrow || plan_.in_storage(held.view);
    const uint64_t most = cut ? std::max(r_.bucket / sizeof(float) / chunk, uint64_t{1}) * chunk : held.count;
    for (uint64_t first = 0; first < held.count; first += most) {
      const uint64_t n = std::min(most, held.count - first);
      out.push_back({{held.first + first, n}, slice(held.view, home.values(first), home.values(n))});
    }
    return out;
  }

  const PlanRequest& r_;
  const Model& model_ = r_.model;
  Plan& plan_;
  Emitter& emit_;
  const Homes& homes_;
  Moves& moves_;
};

}  // namespace

void emit_initial(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, Moves& moves) {
  Initial(request, plan, emitter, homes, moves).emit();
}

}  // namespace eng
