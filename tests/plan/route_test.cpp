// SPDX-License-Identifier: Apache-2.0
// The moves between any two homes, as a table.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "core/plan/route.hpp"
#include "core/tensor/dtype.hpp"

using eng::Where;

namespace {

// "part 0 bf16@1": the axis that changes, and where the value is then.
std::string text(const std::vector<eng::Move>& moves) {
  static const char* axes[] = {"place", "part", "dtype"};
  std::string out;
  for (const eng::Move& m : moves) {
    eng_desc desc{};
    desc.dtype = m.to.dtype, desc.ndim = 0;
    const std::string dtype = eng::describe(desc);
    out += fmt::format("{}{} -> {}@{}/{}", out.empty() ? "" : ", ", axes[static_cast<size_t>(m.axis)],
                       dtype.substr(0, dtype.find(' ')), m.to.place, m.to.part);
  }
  return out;
}

// A device, two tiers that are memory, one that is storage. `apart`: storage is reached through the first of them.
eng::Plan places(bool apart) {
  eng::Plan plan;
  plan.arenas = {{"cpu", "device"}, {"host", "tier"}, {"other", "tier"}, {"disk", "storage"}};
  plan.first_tier = 1, plan.staging_arena = apart ? 1 : 0;
  return plan;
}
const eng::Plan here = places(false), apart = places(true);

}  // namespace

TEST_CASE("a route is this table") {
  constexpr uint32_t device = 0, host = 1, other = 2;
  constexpr eng::Id whole = 0, part = 1;
  struct Row {
    Where from, to;
    const char* moves;
  };
  const Row rows[] = {
      {{device, whole, ENG_F32}, {device, whole, ENG_F32}, ""},
      {{host, part, ENG_BF16}, {host, part, ENG_BF16}, ""},
      // One axis.
      {{device, whole, ENG_F32}, {device, whole, ENG_BF16}, "dtype -> bf16@0/0"},
      {{device, whole, ENG_BF16}, {device, whole, ENG_F32}, "dtype -> f32@0/0"},
      {{device, part, ENG_F32}, {device, whole, ENG_F32}, "part -> f32@0/0"},
      {{host, part, ENG_F32}, {device, part, ENG_F32}, "place -> f32@0/1"},
      {{host, whole, ENG_F32}, {other, whole, ENG_F32}, "place -> f32@2/0"},
      // Equal parts: narrow before the way, wide after it.
      {{device, part, ENG_F32}, {host, part, ENG_F16}, "dtype -> f16@0/1, place -> f16@1/1"},
      {{host, part, ENG_BF16}, {device, part, ENG_F32}, "place -> bf16@0/1, dtype -> f32@0/1"},
      {{host, part, ENG_F16}, {device, part, ENG_BF16}, "dtype -> bf16@1/1, place -> bf16@0/1"},
      // Other parts: over the device, narrow before the way, wide at the end.
      {{device, part, ENG_F32}, {device, whole, ENG_BF16}, "dtype -> bf16@0/1, part -> bf16@0/0"},
      {{device, part, ENG_BF16}, {device, whole, ENG_F32}, "part -> bf16@0/0, dtype -> f32@0/0"},
      {{host, part, ENG_F32}, {device, whole, ENG_F32}, "place -> f32@0/1, part -> f32@0/0"},
      {{host, part, ENG_F32}, {device, whole, ENG_BF16}, "dtype -> bf16@1/1, place -> bf16@0/1, part -> bf16@0/0"},
      {{host, part, ENG_BF16}, {device, whole, ENG_F32}, "place -> bf16@0/1, part -> bf16@0/0, dtype -> f32@0/0"},
      {{device, whole, ENG_F64}, {host, part, ENG_F32}, "dtype -> f32@0/0, part -> f32@0/1, place -> f32@1/1"},
      {{device, whole, ENG_BF16}, {host, part, ENG_F32}, "part -> bf16@0/1, place -> bf16@1/1, dtype -> f32@1/1"},
      {{host, part, ENG_F32}, {host, whole, ENG_F32}, "place -> f32@0/1, part -> f32@0/0, place -> f32@1/0"},
      {{host, part, ENG_BF16},
       {other, whole, ENG_F32},
       "place -> bf16@0/1, part -> bf16@0/0, place -> bf16@2/0, dtype -> "
       "f32@2/0"},
  };
  for (const Row& row : rows) CHECK(text(eng::route(here, row.from, row.to)) == row.moves);
}

TEST_CASE("a route from and to storage is this table") {
  constexpr uint32_t device = 0, host = 1, other = 2, disk = 3;
  constexpr eng::Id whole = 0, part = 1;
  struct Row {
    Where from, to;
    const char *near, *far;
  };
  const Row rows[] = {
      {{disk, whole, ENG_F32}, {disk, whole, ENG_F32}, "", ""},
      {{disk, whole, ENG_F32}, {device, whole, ENG_F32}, "place -> f32@0/0", "place -> f32@1/0, place -> f32@0/0"},
      {{disk, part, ENG_F32}, {host, part, ENG_F32}, "place -> f32@1/1", "place -> f32@1/1"},
      {{other, part, ENG_F32}, {disk, part, ENG_F32}, "place -> f32@3/1", "place -> f32@3/1"},
      // Nothing is computed in storage.
      {{disk, whole, ENG_F32},
       {device, whole, ENG_BF16},
       "place -> f32@0/0, dtype -> bf16@0/0",
       "place -> f32@1/0, dtype -> bf16@1/0, place -> bf16@0/0"},
      {{device, whole, ENG_BF16},
       {disk, whole, ENG_F32},
       "dtype -> f32@0/0, place -> f32@3/0",
       "place -> bf16@1/0, dtype -> f32@1/0, place -> f32@3/0"},
      {{disk, part, ENG_F32},
       {disk, part, ENG_BF16},
       "place -> f32@0/1, dtype -> bf16@0/1, place -> bf16@3/1",
       "place -> f32@1/1, dtype -> bf16@1/1, place -> bf16@3/1"},
      {{disk, part, ENG_F32},
       {disk, whole, ENG_BF16},
       "place -> f32@0/1, dtype -> bf16@0/1, part -> bf16@0/0, place -> bf16@3/0",
       "place -> f32@1/1, dtype -> bf16@1/1, place -> bf16@0/1, part -> bf16@0/0, place -> bf16@1/0, place -> "
       "bf16@3/0"},
  };
  for (const Row& row : rows) {
    CHECK(text(eng::route(here, row.from, row.to)) == row.near);
    CHECK(text(eng::route(apart, row.from, row.to)) == row.far);
  }
}

TEST_CASE(
    "what is summed over ranks moves in the type that is asked for, and the "
    "sum has that type or a wider one of its home") {
  constexpr uint32_t device = 0, host = 1;
  constexpr eng::Id whole = 0, part = 1;
  const auto sum = [](const Where& from, const Where& to, int32_t dtype) {
    return text(eng::route_of_sum(here, from, to, dtype));
  };
  CHECK(sum({device, whole, ENG_F32}, {device, part, ENG_F32}, ENG_F32) == "part -> f32@0/1");
  CHECK(sum({device, whole, ENG_F32}, {device, whole, ENG_F32}, ENG_F32) == "part -> f32@0/0");
  CHECK(sum({device, whole, ENG_BF16}, {device, part, ENG_F32}, ENG_BF16) == "part -> f32@0/1");
  CHECK(sum({device, whole, ENG_F32}, {device, part, ENG_F32}, ENG_BF16) == "dtype -> bf16@0/0, part -> f32@0/1");
  // Narrower gradients than sums: never narrow before the sum.
  CHECK(sum({device, whole, ENG_F32}, {device, part, ENG_BF16}, ENG_F32) == "part -> f32@0/1, dtype -> bf16@0/1");
  CHECK(sum({device, whole, ENG_F32}, {host, part, ENG_BF16}, ENG_F32) ==
        "part -> f32@0/1, dtype -> bf16@0/1, place -> bf16@1/1");
  CHECK(sum({host, whole, ENG_BF16}, {host, part, ENG_F32}, ENG_BF16) ==
        "place -> bf16@0/0, part -> f32@0/1, place -> f32@1/1");
}

TEST_CASE(
    "every route ends where it should, one axis at a time, and moves "
    "between ranks on the device") {
  const int32_t types[] = {ENG_F32, ENG_F64, ENG_BF16, ENG_F16};
  std::vector<Where> all;
  for (uint32_t place : {0u, 1u, 2u, 3u})
    for (eng::Id part : {0u, 1u, 2u})
      for (int32_t dtype : types) all.push_back({place, part, dtype});
  for (size_t k = 0; k < 2 * all.size() * all.size(); ++k) {
    const Where &from = all[k / 2 / all.size()], &to = all[k / 2 % all.size()];
    const eng::Plan& plan = k % 2 ? here : apart;
    {
      Where at = from;
      const auto moves = eng::route(plan, from, to);
      for (const eng::Move& m : moves) {
        const bool place = m.to.place != at.place, part = m.to.part != at.part, dtype = m.to.dtype != at.dtype;
        REQUIRE(int{place} + int{part} + int{dtype} == 1);
        REQUIRE(m.axis == (place ? eng::Axis::place : part ? eng::Axis::part : eng::Axis::dtype));
        if (part) REQUIRE(m.to.place == 0);
        if (dtype) REQUIRE(!plan.stores(at.place));
        REQUIRE(plan.adjacent(at.place, m.to.place));
        // Nothing wider than both ends is moved.
        REQUIRE(eng::dtype_size(at.dtype) <= std::max(eng::dtype_size(from.dtype), eng::dtype_size(to.dtype)));
        at = m.to;
      }
      CHECK(at == to);
      CHECK(moves.size() <= 6);
    }
  }
}
