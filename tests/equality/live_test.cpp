// SPDX-License-Identifier: Apache-2.0
// zero.live_limit against the bytes that are in use while the queues run, in whatever order.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>

#include "core/memory/layout.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "draw.hpp"

using namespace equality;

namespace {

// Orders of the queues: equally likely, some far ahead, and the ones that hold most.
std::vector<Schedule> orders(uint64_t seed) {
  return {{seed}, {seed + 1, true}, {seed + 2, false, {}, true}, {seed + 3, true, {}, true}};
}

// The most bytes over some orders; `complaint` is the first one.
uint64_t most_live(const Group& group, const Planned& planned, std::string& complaint) {
  uint64_t most = 0;
  for (const Schedule& order : orders(10)) {
    const Result result = train(group, planned, order);
    if (complaint.empty()) complaint = result.complaint;
    most = std::max(most, result.most_live);
  }
  return most;
}

// Removes from the plan what holds an action back for the sake of memory alone.
void drop_admissions(Planned& planned) {
  for (eng::Plan& plan : planned.plans) {
    for (eng::Program& program : plan.programs)
      for (eng::Segment& segment : program.segments)
        for (eng::Action& action : segment.actions) action.after.clear();
    eng::place_waits(plan);
    eng::place_buffers(plan);
  }
}

void capped(const Group& group, Draw draw, const std::vector<double>& limits) {
  INFO(describe(group) << "; " << draw.strategy << ", prefetch " << draw.prefetch);
  std::string complaint;
  const uint64_t free = most_live(group, plan(group, draw), complaint);
  CHECK(complaint == "");
  for (double times : limits) {
    draw.live_limit = times;
    INFO(times << " times the least");
    Planned planned = plan(group, draw);
    const uint64_t most = most_live(group, planned, complaint);
    CHECK(complaint == "");
    CHECK(most <= planned.live_limit);
    if (times > 1) continue;
    CHECK(free > planned.live_limit);                             // it has something to do
    CHECK(static_cast<double>(most) > 0.7 * planned.live_limit);  // and is no more than it has to be
    std::cout << describe(group) << "; " << draw.strategy << ": at most " << most << " bytes in use with a limit of "
              << planned.live_limit << ", " << free << " without";
    drop_admissions(planned);
    for (const eng::Plan& plan : planned.plans) CHECK(eng::problems(plan).empty());  // in order, and too much
    std::string seen;
    std::cout << ", " << most_live(group, planned, seen) << " without its waits\n";
    CHECK_THAT(seen, Catch::Contains("bytes of leases and fresh gradients were in use at a time"));
  }
}

}  // namespace

TEST_CASE("no order of the queues holds more than live_limit", "[.slow]") {
  capped({"llama-tied", 2, 1, false}, {"zero3", 65536, 2, true, 0}, {1.0, 2.0});
  // The whole gradients of matrices are leased in the update.
  Group muon{"llama-tied", 2, 1, false};
  muon.optimizer = "plugin = 'muon'\nlearning_rate = 1e-2\n";
  capped(muon, {"zero2", 65536, 1, true, 0}, {1.0});
}

TEST_CASE("many plans hold no more than live_limit in any order of the queues", "[.slow]") {
  for (const char* model : {"llama", "llama-tied", "odd-tied", "mamba"})
    for (const char* strategy : {"none", "zero2", "zero3", "two_level"})
      for (int64_t prefetch : {1, 3}) {
        const bool leases = strategy == std::string("zero3") || strategy == std::string("two_level");
        if (prefetch > 1 && !leases) continue;
        capped({model, 2, 1, false}, {strategy, 65536, prefetch, true, 0}, {1.0, 1.3, 2.0, 3.0});
      }
}

TEST_CASE("fresh gradients of two blocks are there at a time") {
  // One block's while the other's are reduced. Two blocks of this model make none of their own: one has no parameters,
  // the other one's gradient comes from the head. They hand on nobody's turn.
  const Group group{"odd", 2, 1, false};
  const Planned planned = plan(group, {"zero2", 65536, 1, true, 0});
  std::string complaint;
  const uint64_t most = most_live(group, planned, complaint);
  CHECK(complaint == "");
  const std::vector<eng::Unit>& units = planned.plans[0].units;
  const auto block_of = [&](const std::string& name) {
    return std::find_if(units.begin(), units.end(), [&](const eng::Unit& u) { return u.name == name; })->block;
  };
  const uint32_t head = block_of("head"), layer = block_of("layers.1");
  uint64_t bound = 0;
  for (uint32_t b = 0; b <= head; ++b) {
    uint64_t sum = 0;
    for (const eng::Unit& u : units) {
      const uint32_t made = u.name == "loan" ? head : u.name == "layers.0" ? layer : u.block;
      if ((u.block <= b && b <= made) || u.block == b + 1) sum += u.count * sizeof(float);
    }
    bound = std::max(bound, sum);
  }
  INFO(most << " of " << bound);
  CHECK(most == bound);
}
