// SPDX-License-Identifier: Apache-2.0
// The lease table: who waits for whom before memory is used again.
#include <catch2/catch.hpp>

#include "core/plan/leases.hpp"
#include "engine/ops.h"
#include "engine/policy.h"

using eng::Lease;
using eng::Leases;
using eng::View;

namespace {

constexpr int64_t n = 256;  // elements of f32 in a unit
constexpr uint64_t unit_bytes = 4 * n;
using After = std::vector<uint32_t>;

struct Table {
  eng::Plan plan;
  eng::Emitter emit{plan, {}};
  Leases leases{emit};
  Table() {
    plan.arenas.push_back({"none", "device", 0, 0, 0});
    plan.arenas.push_back({"none", "host", 0, 0, 0});
    emit.begin_program("p");
    emit.begin_segment("s", 1);
    emit.label(eng::Phase::step, "leases");
  }
  View take(size_t unit, int32_t role = ENG_ROLE_WEIGHT, uint32_t place = 0) {
    return leases.acquire({role, unit}, "unit", eng::Line::leases, eng::make_desc(ENG_F32, {n}), place);
  }
  void drop(size_t unit, int32_t role = ENG_ROLE_WEIGHT) { leases.release({role, unit}); }
  // An action that uses a view; gives what it has to come after.
  After use(const View& view) {
    emit.zero(view);
    return plan.programs[0].segments[0].actions.back().after;
  }
};

}  // namespace

TEST_CASE("without a budget nobody waits, and what is held is found by role, unit and piece") {
  Table t;
  const View a = t.take(0), b = t.take(1);
  CHECK(a.buffer != b.buffer);
  CHECK(t.leases.find({ENG_ROLE_WEIGHT, 0}).buffer == a.buffer);
  CHECK(t.leases.find({ENG_ROLE_GRAD, 0}).buffer == 0);
  CHECK(t.leases.find({ENG_ROLE_WEIGHT, 0, 3}).buffer == 0);
  t.use(a), t.drop(0);
  CHECK(t.leases.find({ENG_ROLE_WEIGHT, 0}).buffer == 0);
  CHECK(t.use(t.take(2)) == After{});
}

TEST_CASE("who takes room that was released waits for all who used it, and nobody else does") {
  Table t;
  t.leases.allow(ENG_ROLE_WEIGHT, 0, {2 * unit_bytes});
  const View a = t.take(0), b = t.take(1);
  CHECK(t.use(a) == After{});  // 0
  CHECK(t.use(b) == After{});  // 1
  CHECK(t.use(a) == After{});  // 2
  CHECK_FALSE(t.leases.fits(ENG_ROLE_WEIGHT, unit_bytes));
  t.drop(0);
  CHECK(t.leases.fits(ENG_ROLE_WEIGHT, unit_bytes));
  CHECK(t.use(b) == After{});  // 3: takes no room
  const View c = t.take(2);
  CHECK(t.use(c) == After{0, 2});  // 4
  CHECK(t.use(c) == After{});      // 5: once is enough
  t.drop(1), t.drop(2);
  CHECK(t.use(t.take(3)) == After{1, 3});  // the oldest goes first
  CHECK(t.use(t.take(4)) == After{4, 5});
}

TEST_CASE("an acquisition larger than what was released last waits for as many as it needs") {
  Table t;
  t.leases.allow(ENG_ROLE_WEIGHT, 0, {3 * unit_bytes});
  for (size_t u : {0, 1, 2}) t.use(t.take(u));
  t.drop(1), t.drop(0);
  const View wide = t.leases.acquire({ENG_ROLE_WEIGHT, 3}, "wide", eng::Line::leases, eng::make_desc(ENG_F32, {2 * n}));
  CHECK(t.use(wide) == After{1, 0});
}

TEST_CASE("turns: what was released so many turns ago is out of use") {
  Table t;
  t.leases.allow(ENG_ROLE_PARTIAL, 0, {UINT64_MAX, 2});
  for (size_t u = 0; u < 5; ++u) {
    const After waits = t.use(t.take(u, ENG_ROLE_PARTIAL));
    CHECK(waits == (u < 2 ? After{} : After{static_cast<uint32_t>(u) - 2}));
    t.drop(u, ENG_ROLE_PARTIAL);
    t.leases.turn(ENG_ROLE_PARTIAL);
  }
}

TEST_CASE("roles and places have budgets of their own") {
  Table t;
  t.leases.allow(ENG_ROLE_WEIGHT, 0, {unit_bytes});
  t.leases.allow(ENG_ROLE_WEIGHT, 1, {unit_bytes});
  t.use(t.take(0)), t.drop(0);
  const View host = t.take(1, ENG_ROLE_WEIGHT, 1);
  CHECK(t.plan.buffer(host.buffer).arena == 1);
  CHECK(t.use(host) == After{});
  CHECK(t.use(t.take(0, ENG_ROLE_GRAD)) == After{});
  t.drop(1);
  CHECK(t.use(t.take(2, ENG_ROLE_WEIGHT, 1)) == After{1});
  CHECK(t.use(t.take(3)) == After{0});
}
