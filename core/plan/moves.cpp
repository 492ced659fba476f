// SPDX-License-Identifier: Apache-2.0
#include "core/plan/moves.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/ops.h"

namespace eng {
namespace {

bool crosses(const std::vector<Move>& way, Axis axis = Axis::part) {
  return std::any_of(way.begin(), way.end(), [axis](const Move& m) { return m.axis == axis; });
}

}  // namespace

// Has a policy write all of `to` from `from`: piece `piece` of a state of unit u.
void Moves::move(const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part,
                 const View& to, Id to_part) {
  EmittingBuilder builder(emit_, plan_.ranks, "move " + homes_.unit(u).name);
  const auto home = [](const View& v, Id part) {
    return eng_view{sizeof(eng_view), v.desc.dtype, part, 0, static_cast<uint64_t>(count(v.desc))};
  };
  const eng_view source = home(from, from_part), target = home(to, to_part);
  const std::vector<eng_id> states = own_.add(builder, policy, false);
  eng_move m{};
  m.struct_size = sizeof m, m.role = role, m.unit = static_cast<eng_id>(u + 1), m.piece = static_cast<uint32_t>(piece);
  m.src = builder.add(from), m.dst = builder.add(to, true), m.from = &source, m.to = &target;
  m.states = states.data(), m.n_states = static_cast<uint32_t>(states.size());
  if (role == ENG_ROLE_GRAD && !from_part && &policy == r_.sharding && homes_.keeps_residuals())
    m.residual = builder.add(homes_.view(homes_.residual[u], homes_.pieces(u)[piece]), true);
  const size_t before = emit_.segment().actions.size();
  ask(policy.who(), builder, Exit::environment, policy.table.move, policy.self.get(), &builder, &m);
  if (written(emit_.segment(), before, to) != Written::all)
    throw fault("{}: its move of role {} leaves a part of dst unwritten ({}, piece {})", policy.who(), role,
                homes_.unit(u).name, piece);
}

// Takes a piece from `from`, which is at `at`, along a route to `to`. Where it moves between ranks, all of it runs
// beside the computation.
void Moves::carry(const std::vector<Move>& way, int32_t role, size_t u, size_t piece, View from, Where at,
                  const View& to) {
  const uint64_t chunk_bytes = eng_packed_bytes(at.dtype), held = static_cast<uint64_t>(count(from.desc));
  const uint64_t all = (chunk_bytes ? held / chunk_bytes * chunk : held) * plan_.ranks.part(at.part).count;
  const bool far = crosses(way, Axis::place);
  const auto between = [&](const eng_desc& desc, uint32_t place) {
    const std::string name = "move " + homes_.unit(u).name;
    return far ? emit_.passing(name, Line::communication, desc, place)
               : emit_.transient(name, Line::communication, desc, place);
  };
  const auto moves = [&] {
    for (size_t k = 0; k < way.size(); ++k) {
      const Where& next = way[k].to;
      View target = to;
      if (k + 2 == way.size() && way[k + 1].axis == Axis::part && next.part && !way[k + 1].to.part)
        target = homes_.part(to, next.part);  // the rest comes around it
      else if (k + 1 < way.size())
        target = between(flat(next.dtype, all / plan_.ranks.part(next.part).count), next.place);
      const Policy* const by = way[k].axis == Axis::part ? static_cast<const Policy*>(r_.sharding) : &r_.precision;
      if (way[k].axis == Axis::place)
        emit_.action(op(ENG_OP_COPY), {from}, {target});
      else
        move(*by, role, u, piece, from, at.part, target, next.part);
      from = target, at = next;
    }
  };
  between_ranks(moves, crosses(way));
}

void Moves::publish(size_t u, uint64_t first, bool whole) {
  const Home &from = homes_.master[u], own = homes_.own(u), &to = homes_.weight[u];
  const bool far = crosses(route(plan_, from.where(), to.where()), Axis::place);
  const auto pieces = homes_.pieces(u, !from.part && !to.part && !from.back && !far);
  for (size_t k = 0; k < pieces.size(); ++k) {
    const uint64_t at = pieces[k].first;
    const auto move = [&](const Home& a, const Home& b) {
      if (a.where(at) == b.where(at) || !homes_.held(u)) return;
      emit_.label(Phase::publish, homes_.unit(u).name);
      carry(route(plan_, a.where(at), b.where(at)), ENG_ROLE_WEIGHT, u, k, homes_.view(a, pieces[k]), a.where(at),
            homes_.view(b, pieces[k]));
    };
    if (at + pieces[k].count > first) move(from, own);
    if (whole) move(own, to);
  }
}

View Moves::gather(Leases& leases, const std::string& what, Line line, int32_t role, size_t u, const Home& home,
                   int32_t dtype) {
  const View whole = leases.acquire({role, u}, fmt::format("{} {}", what, homes_.unit(u).name), line,
                                    flat(dtype ? dtype : home.view.desc.dtype, homes_.unit(u).count));
  const auto way = route(plan_, home.where(), {0, 0, whole.desc.dtype});
  const auto pieces = homes_.pieces(u, !home.part && !crosses(way, Axis::place));
  emit_.label(Phase::gather, homes_.unit(u).name);
  // Beside the computation, which would else wait for the copy from a tier before it needs what is decoded.
  const Queue before = emit_.on(home.place && r_.traits.queues ? Queue::h2d : Queue::compute);
  for (size_t k = 0; k < pieces.size(); ++k)
    carry(way, role, u, k, homes_.view(home, pieces[k]), home.where(), slice(whole, pieces[k].first, pieces[k].count));
  emit_.on(before);
  return whole;
}

void Moves::reduce(size_t u, const View& own, bool store) {
  emit_.label(Phase::reduce, homes_.unit(u).name);
  Where to = homes_.grad[u].where();
  if (!store) to.place = plan_.memory_of(to.place);
  add(u, route_of_sum(plan_, {0, 0, own.desc.dtype}, to, homes_.partial(u), plan_.ranks.single()), own, homes_.grad[u],
      store);
}

// Stores or adds what comes along a route. Sums are made in memory.
void Moves::add(size_t u, const std::vector<Move>& way, const View& from, const Home& home, bool store) {
  const bool far = crosses(way, Axis::place) || plan_.stores(home.place);
  const auto pieces = homes_.pieces(u, !crosses(way) && !far);
  const Where at{0, 0, from.desc.dtype};
  for (const Range& piece : pieces) {
    const View to = homes_.view(home, piece);
    View value = slice(from, piece.first, piece.count);
    if (!way.empty()) {
      const std::string name = "reduced " + homes_.unit(u).name;
      const View arrived = store ? to
                           : far ? emit_.passing(name, Line::communication, to.desc, plan_.memory_of(home.place))
                                 : emit_.transient(name, Line::communication, to.desc);
      carry(way, ENG_ROLE_GRAD, u, static_cast<size_t>(&piece - pieces.data()), value, at, arrived);
      value = arrived;
    }
    const auto sum = [&] {
      const View here = emit_.in_memory(to, "gradient " + homes_.unit(u).name, Line::communication);
      emit_.action(op(ENG_OP_ADD), {here, value}, {here});
      if (here.buffer != to.buffer) emit_.copy(here, to);
    };
    if (!store) between_ranks(sum, crosses(way));
  }
}

View Moves::collective(const char* id, const View& from, const View& to, bool all) {
  EmittingBuilder builder(emit_, plan_.ranks, "exchange");
  if (all) builder.everyone = 1;
  const Id in = builder.add(from);
  const Id out = builder.emit(op(id), {in}, {builder.add(to, true)}, {{{"group", data_group, 0}}})[0];
  return builder.view(out);
}

}  // namespace eng
