// SPDX-License-Identifier: Apache-2.0
// eng.zero/1: on random plans, the bits of a run in which every rank keeps everything. Of a lossy strategy, losses near
// those, and the same bits in two equal runs.
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// Requires the same answers to the same questions, and the whole where there is nothing to divide.
void check_place(const Subject& s, const Chosen<eng_axis>& zero, uint32_t ranks) {
  for (uint32_t r = 0; r < ranks; ++r) {
    Ranks world(World{r, ranks, r, ranks});
    const Sharding one = make_sharding(zero.name, zero.table, zero.options, world);
    Random random = s.random("place");
    std::map<std::pair<int32_t, uint32_t>, Id> told;
    for (int k = 0; k < 60; ++k) {
      const auto number = static_cast<uint32_t>(pick(random, 1, 4));
      const eng_unit unit = {sizeof(eng_unit), number, number, 0, 4096ull * ranks * number};
      const auto role = static_cast<int32_t>(pick(random, ENG_ROLE_WEIGHT, ENG_ROLE_GRAD));
      const Id part = one.part(role, unit);
      if (part > world.parts.size())
        throw Broken(fmt::format("it keeps role {} as part {}, which it has not made", role, part));
      const auto [known, fresh] = told.try_emplace({role, number}, part);
      if (!fresh && known->second != part)
        throw Broken(
            fmt::format("place answers part {} for role {} of a unit, and then part {}", known->second, role, part));
    }
  }
}

// True if it says so for these options and ranks.
bool is_lossy(const Chosen<eng_axis>& zero, uint32_t ranks) {
  Ranks world(World{0, ranks, 0, ranks});
  return make_sharding(zero.name, zero.table, zero.options, world).table.flags & ENG_AXIS_LOSSY;
}

std::string check_plans(const Subject& s, const Chosen<eng_axis>& zero, uint32_t ranks, Machine& on) {
  Random random = s.random("plans " + std::to_string(ranks));
  const auto optimizer = usual_optimizer(s);
  const bool lossy = is_lossy(zero, ranks);
  double worst = 0;
  for (int round = 0; round < s.rounds + 1; ++round) {
    Course course = plain_course(s, random);
    course.optimizer = optimizer;
    course.ranks = ranks;
    course.per_step = chance(random, 0.4), course.overlap = chance(random, 0.6);
    course.prefetch = pick(random, 0, 2);
    course.bucket = chance(random, 0.5) ? 1 << 14 : 1 << 20;
    const std::string how =
        fmt::format("{} ranks, batch ({}, {}), {} micro-batches, bucket {}{}", ranks, course.rows, course.length,
                    course.accumulate, course.bucket, course.per_step ? ", reduced once per step" : "");
    const Results plain = results_of(course, on);
    course.zero = zero;
    Results theirs;
    try {
      theirs = results_of(course, on);
    } catch (const Untested&) {
      throw;
    } catch (const std::exception& e) {
      throw Broken(fmt::format("{}; {}", e.what(), how));
    }
    if (const std::string d = first_difference(plain, theirs); !lossy && !d.empty())
      throw Broken(fmt::format(
          "other bits than where every rank keeps everything, and it is not ENG_AXIS_LOSSY: {}; {}", d, how));
    if (!lossy) continue;
    worst = std::max(worst, loss_distance(plain, theirs, how));
    if (const std::string d = first_difference(theirs, results_of(course, on)); !d.empty())
      throw Broken(fmt::format("two equal runs differ: {}; {}", d, how));
  }
  return fmt::format("{} random plans verified and run{}", s.rounds + 1,
                     lossy ? fmt::format("; lossy: losses within {:.2g} of plain ones", worst) : "");
}

}  // namespace

void test_zero(const Subject& s, Sheet& sheet) {
  Chosen<eng_axis> zero;
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("its table", [&] {
    zero = s.chosen<eng_axis>();
    on = machine(s, "cpu", 1);
    load_ops(s.registry);
    return "";
  });
  if (!made) return;
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    const bool there = sheet.check(fmt::format("create and place on {} ranks", ranks), [&] {
      Ranks world(World{0, ranks, 0, ranks});
      RanksBuilder builder(world);
      const Watched options(zero.options);
      Sink sink;
      void* self = nullptr;
      const eng_status status = zero.table.create(options.get(), &builder, &self, sink.get());
      if (status == ENG_OK) zero.table.destroy(self);
      builder.check("create");
      check_made(status, sink, options.misuse());
      check_place(s, zero, ranks);
      return "";
    });
    if (there)
      sheet.check(
          fmt::format("{} on {} ranks", is_lossy(zero, ranks) ? "random plans" : "the bits of plain plans", ranks),
          [&] { return check_plans(s, zero, ranks, *on); });
  }
}

}  // namespace eng::plugin_test
