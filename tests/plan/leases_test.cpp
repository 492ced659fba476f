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
    emit.begin_program("p");
    emit.begin_segment("s", 1);
    emit.label(eng::Phase::step, "leases");
  }
  View take(size_t unit, int32_t role = ENG_ROLE_WEIGHT, int64_t elements = n) {
    return leases.acquire({role, unit}, "unit", eng::Line::leases, eng::make_desc(ENG_F32, {elements}));
  }
  void drop(size_t unit, int32_t role = ENG_ROLE_WEIGHT) { leases.release({role, unit}); }
  // An action that uses a view; gives what it has to come after.
  After use(const View& view) {
    emit.zero(view);
    return plan.programs[0].segments[0].actions.back().after;
  }
};

}  // namespace

TEST_CASE("without a limit nobody waits, and what is held is found by role and unit") {
  Table t;
  const View a = t.take(0), b = t.take(1);
  CHECK(a.buffer != b.buffer);
  CHECK(t.leases.find({ENG_ROLE_WEIGHT, 0}).buffer == a.buffer);
  CHECK(t.leases.find({ENG_ROLE_GRAD, 0}).buffer == 0);
  t.use(a), t.drop(0);
  CHECK(t.leases.find({ENG_ROLE_WEIGHT, 0}).buffer == 0);
  CHECK(t.use(t.take(2)) == After{});
}

TEST_CASE("who takes room that was released waits for all who used it, and nobody else does") {
  Table t;
  t.leases.limit(2 * unit_bytes);
  const View a = t.take(0), b = t.take(1);
  CHECK(t.use(a) == After{});  // 0
  CHECK(t.use(b) == After{});  // 1
  CHECK(t.use(a) == After{});  // 2
  CHECK_FALSE(t.leases.fits(unit_bytes));
  CHECK_THROWS_WITH(t.take(2), Catch::Contains("the leases that are held leave too few bytes"));
  t.drop(0);
  CHECK(t.leases.fits(unit_bytes));
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
  t.leases.limit(3 * unit_bytes);
  for (size_t u : {0, 1, 2}) t.use(t.take(u));
  t.drop(1), t.drop(0);
  CHECK(t.use(t.take(3, ENG_ROLE_WEIGHT, 2 * n)) == After{1, 0});
}

TEST_CASE("each acquisition that takes a part of what was released waits for its users") {
  Table t;
  t.leases.limit(2 * unit_bytes);
  t.use(t.take(0, ENG_ROLE_WEIGHT, 2 * n)), t.drop(0);
  CHECK(t.use(t.take(1)) == After{0});
  CHECK(t.use(t.take(2, ENG_ROLE_PARTIAL)) == After{0});  // it may be on another queue
}

TEST_CASE("turns: what was released so many turns ago is out of use") {
  Table t;
  t.leases.pace(ENG_ROLE_PARTIAL, {UINT64_MAX, 2});
  for (size_t u = 0; u < 5; ++u) {
    const After waits = t.use(t.take(u, ENG_ROLE_PARTIAL));
    CHECK(waits == (u < 2 ? After{} : After{static_cast<uint32_t>(u) - 2}));
    t.drop(u, ENG_ROLE_PARTIAL);
    t.leases.turn(ENG_ROLE_PARTIAL);
  }
}

TEST_CASE("all roles share the bytes") {
  Table t;
  t.leases.limit(2 * unit_bytes);
  t.use(t.take(0));                    // 0
  t.use(t.take(0, ENG_ROLE_PARTIAL));  // 1
  CHECK_FALSE(t.leases.fits(1));
  t.drop(0, ENG_ROLE_PARTIAL);
  CHECK(t.use(t.take(1)) == After{1});  // 2: a weight where a gradient was
}

TEST_CASE("a role's own pace holds it back where the budget has bytes left") {
  Table t;
  t.leases.limit(3 * unit_bytes);
  t.leases.pace(ENG_ROLE_WEIGHT, {unit_bytes});
  t.use(t.take(0)), t.drop(0);                           // 0
  CHECK(t.use(t.take(0, ENG_ROLE_PARTIAL)) == After{});  // 1
  CHECK(t.use(t.take(1)) == After{0});                   // 2
  t.drop(1), t.drop(0, ENG_ROLE_PARTIAL);                // two units released, one never used
  CHECK(t.use(t.take(2)) == After{2});                   // 3: its own, although the gradient's are older
  CHECK(t.use(t.take(3, ENG_ROLE_PARTIAL)) == After{});  // 4: what was never used
  CHECK(t.use(t.take(4, ENG_ROLE_PARTIAL)) == After{1});
}
