// SPDX-License-Identifier: Apache-2.0
// Plans of one rank among several: homes in parts, pieces, leases, reductions; on one machine, without the others.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/verify/verify.hpp"
#include "engine/ops.h"
#include "session/config/config.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "sketch.hpp"

using namespace sketch;
using eng::Plan;

namespace {

constexpr const char* tiny = R"([model]
plugin = "llama"
preset = "tiny"
tie_word_embeddings = true
[train]
micro_batch = 2
sequence_length = 32
[zero]
bucket = "64KiB"
)";

eng::Setup setup(std::vector<std::string> overrides, uint32_t rank, uint32_t ranks, const std::string& text = tiny) {
  overrides.push_back("device.plugin=reference");
  const eng::Config config = eng::Config::parse(text, "test.toml", ".", overrides, schemas_of(registry()));
  return eng::make_setup(config, registry(), 0, {rank, ranks, rank, ranks});
}

uint64_t bytes_of(const Plan& plan, eng::Line line, bool persistent = true) {
  uint64_t sum = 0;
  for (const eng::Buffer& b : plan.buffers) sum += b.line == line && b.persistent == persistent ? b.bytes : 0;
  return sum;
}

// The number of elements that a collective takes in all of one program, repetitions counted.
std::map<std::string, uint64_t> moved(const Plan& plan, const std::string& program) {
  std::map<std::string, uint64_t> out;
  for (const auto& segment : plan.program(program).segments)
    for (const auto& action : segment.actions)
      if (const auto& call = plan.calls[action.call]; call.op->collective)
        out[call.op->id] +=
            static_cast<uint64_t>(std::max(eng::count(call.in[0]), eng::count(call.out[0]))) * segment.repeat;
  return out;
}

// The collectives in their order, as all ranks must have them.
std::string sequence(const Plan& plan) {
  std::string out;
  for (const auto& program : plan.programs)
    for (const auto& segment : program.segments)
      for (const auto& action : segment.actions)
        if (const auto& call = plan.calls[action.call]; call.op->collective)
          out += std::string(call.op->id) + " " + eng::describe(call.in[0]) + " " + plan.labels[action.label].text() +
                 "\n";
  return out;
}

const char* const strategies[] = {"none", "zero1", "zero2", "zero3"};

}  // namespace

TEST_CASE("every rank of every strategy has a valid plan, of equal size and with the same collectives") {
  for (const std::string strategy : strategies)
    for (uint32_t ranks : {2, 3, 5}) {
      std::string first;
      uint64_t total = 0;
      for (uint32_t r = 0; r < ranks; ++r) {
        const auto s = setup({"zero.plugin=" + strategy, "train.accumulate=2"}, r, ranks);
        INFO(strategy << ", rank " << r << " of " << ranks);
        CHECK(eng::problems(s.plan).empty());
        if (r == 0) first = sequence(s.plan), total = s.plan.arenas[0].total();
        CHECK(sequence(s.plan) == first);
        CHECK(s.plan.arenas[0].total() == total);
      }
    }
}

TEST_CASE("the ranks' ranges are the tensor, each element once") {
  for (const std::string strategy : {"zero1", "zero3"})
    for (uint32_t ranks : {2, 3, 4}) {
      std::map<std::string, std::vector<int>> seen;
      for (uint32_t r = 0; r < ranks; ++r) {
        const auto s = setup({"zero.plugin=" + strategy}, r, ranks);
        for (const auto& t : s.plan.tensors) {
          CHECK(t.part == 1);
          auto& elements = seen[t.name + " " + t.role];
          elements.resize(static_cast<size_t>(eng::count(t.desc)));
          for (const auto& e : t.ranges) {
            CHECK(e.count == static_cast<uint64_t>(eng::count(e.view.desc)));
            for (uint64_t k = 0; k < e.count; ++k) ++elements.at(e.first + k);
          }
        }
      }
      for (const auto& [name, elements] : seen) {
        INFO(strategy << " " << ranks << " " << name);
        CHECK(std::count(elements.begin(), elements.end(), 1) == static_cast<ptrdiff_t>(elements.size()));
      }
    }
  for (const auto& t : setup({"zero.plugin=none"}, 1, 3).plan.tensors) {
    CHECK(t.part == 0);
    CHECK(eng::same(t.whole().desc, t.desc));
  }
  CHECK_THROWS(setup({"zero.plugin=zero3"}, 1, 3).plan.tensors[0].whole());
}

TEST_CASE("what a rank keeps falls with their number as the strategy says") {
  const auto whole = [](uint32_t ranks) {  // elements, padded for so many ranks
    uint64_t n = 0;
    for (const auto& unit : setup({}, 0, ranks).plan.units) n += unit.count;
    return n;
  };
  for (uint32_t ranks : {2, 4, 8}) {
    const uint64_t p = 4 * whole(ranks);  // bytes of f32
    for (const std::string strategy : strategies) {
      const Plan plan = setup({"zero.plugin=" + strategy}, 0, ranks).plan;
      INFO(strategy << " " << ranks);
      CHECK(bytes_of(plan, eng::Line::weights) == (strategy == "zero3" ? p / ranks : p));
      CHECK(bytes_of(plan, eng::Line::optimizer) == (strategy == "none" ? 2 * p : 2 * p / ranks));
    }
  }
}

TEST_CASE("traffic is that of the strategy") {
  for (uint32_t ranks : {2, 3})
    for (uint32_t a : {1, 4}) {
      uint64_t p = 0, chunks = 0;
      for (const auto& unit : setup({}, 0, ranks).plan.units) p += unit.count;
      chunks = p / eng::chunk;
      const std::string accumulate = "train.accumulate=" + std::to_string(a);
      for (const std::string strategy : {"none", "zero1", "zero2"}) {
        INFO(strategy << " " << ranks << " ranks, " << a << " micro-batches");
        auto each = moved(setup({"zero.plugin=" + strategy, accumulate}, 0, ranks).plan, "train");
        CHECK(each[ENG_OP_ALL_TO_ALL] == a * p + chunks);                    // reductions, and the norm's
        CHECK(each[ENG_OP_ALL_GATHER] == p + chunks + uint64_t{a} * ranks);  // one gather; norm; losses
        auto once = moved(setup({"zero.plugin=" + strategy, accumulate, "train.reduce=step"}, 0, ranks).plan, "train");
        CHECK(once[ENG_OP_ALL_TO_ALL] == p + chunks);
        CHECK(once[ENG_OP_ALL_GATHER] == p + chunks + uint64_t{a} * ranks);
      }
      INFO("zero3 " << ranks << " ranks, " << a << " micro-batches");
      auto zero3 = moved(setup({"zero.plugin=zero3", accumulate, "zero.prefetch=0"}, 0, ranks).plan, "train");
      CHECK(zero3[ENG_OP_ALL_TO_ALL] == a * p + chunks);
      // At most once forward and once backward, and once more for a tied table; what is still there is not asked for.
      const uint64_t gathered = zero3[ENG_OP_ALL_GATHER] - chunks - uint64_t{a} * ranks;
      CHECK(gathered <= 3 * a * p);
      CHECK(gathered >= a * p);
    }
}

TEST_CASE("reductions run beside the backward, gathers ahead of it") {
  const Plan plan = setup({"zero.plugin=zero3"}, 0, 2).plan;
  std::map<eng::Queue, size_t> actions;
  size_t waits = 0;
  for (const auto& segment : plan.program("train").segments)
    for (const auto& a : segment.actions) {
      ++actions[a.queue], waits += a.waits.size();
      if (plan.calls[a.call].op->collective) CHECK(a.queue == eng::Queue::comm);
    }
  CHECK(actions[eng::Queue::comm] > 10);
  CHECK(waits > 10);
  const Plan apart = setup({"zero.plugin=zero3", "zero.overlap=false"}, 0, 2).plan;
  for (const auto& segment : apart.program("train").segments)
    for (const auto& a : segment.actions) CHECK(a.queue == eng::Queue::compute);
}

TEST_CASE("one reduction per step runs beside the last backward") {
  const Plan plan = setup({"zero.plugin=zero2", "train.reduce=step", "train.accumulate=4"}, 0, 2).plan;
  const auto& segments = plan.program("train").segments;
  REQUIRE(segments.size() == 4);
  const auto sums = [&](const eng::Segment& segment) {
    return std::count_if(segment.actions.begin(), segment.actions.end(), [&](const eng::Action& a) {
      const bool gradients = plan.labels[a.label].phase == eng::Phase::reduce;
      return gradients && std::string(plan.calls[a.call].op->id) == ENG_OP_ALL_TO_ALL;
    });
  };
  CHECK(segments[1].repeat == 2);
  CHECK(segments[2].name == "last");
  CHECK(sums(segments[0]) + sums(segments[1]) + sums(segments[3]) == 0);
  CHECK(sums(segments[2]) > 5);
  // Computation goes on behind the first of them, and does not wait for it.
  const auto& actions = segments[2].actions;
  const auto first =
      std::find_if(actions.begin(), actions.end(), [](const eng::Action& a) { return a.queue == eng::Queue::comm; });
  const auto behind = std::count_if(
      first, actions.end(), [](const eng::Action& a) { return a.queue == eng::Queue::compute && a.waits.empty(); });
  CHECK(behind > 20);
}

TEST_CASE("live_limit caps leases and fresh gradients") {
  const auto needs = [](const std::vector<std::string>& overrides) {
    const Plan plan = setup(overrides, 0, 2).plan;
    CHECK(eng::problems(plan).empty());
    return plan.arenas[0].transient;
  };
  const uint64_t free = needs({"zero.plugin=zero3", "zero.prefetch=4"});
  uint64_t least = 0;
  try {
    setup({"zero.plugin=zero3", "zero.live_limit=1KiB"}, 0, 2);
  } catch (const eng::Error& e) {
    CHECK_THAT(e.what(), Catch::Contains("zero.live_limit = 1.0 KiB is less than one block needs"));
    std::sscanf(e.help().c_str(), "raise it to %lu bytes", &least);
  }
  REQUIRE(least > 0);
  CHECK_THROWS(setup({"zero.plugin=zero2", "zero.live_limit=1KiB"}, 0, 2));  // fresh gradients count alone, too
  CHECK_NOTHROW(setup({"zero.plugin=zero2", "zero.live_limit=1KiB"}, 0, 1));
  CHECK_NOTHROW(setup({"zero.plugin=zero3", "zero.live_limit=" + std::to_string(least)}, 0, 2));
  CHECK_THROWS(setup({"zero.plugin=zero3", "zero.live_limit=" + std::to_string(least - 1)}, 0, 2));
  CHECK(needs({"zero.plugin=zero3", "zero.prefetch=4", "zero.live_limit=" + std::to_string(least)}) < free);
}

TEST_CASE("a policy that leaves a part of its destination unwritten is refused") {
  // zero1, but of the weights to be published only the first half of each piece moves, or none.
  static eng_axis good;
  good = registry().table<eng_axis>(ENG_ZERO_KIND, "zero1");
  static uint32_t kept;
  eng_axis bad = good;
  bad.move = [](void* self, eng_build* b, const eng_move* m, eng_error* error) -> eng_status {
    if (m->role != ENG_ROLE_WEIGHT) return good.move(self, b, m, error);
    eng_id src = 0, dst = 0;
    const eng_attr group = {"group", 1, 0};
    if (!kept) return ENG_OK;
    b->api->slice(b, m->src, 0, m->from->count / kept, &src, error);
    b->api->slice(b, m->dst, 0, m->to->count / kept, &dst, error);
    return b->api->emit(b, ENG_OP_ALL_GATHER, &src, 1, &dst, 1, &group, 1, error);
  };
  const eng::Setup from = setup({"zero.plugin=zero1"}, 0, 2);
  const auto planned = [&](uint32_t parts) {
    kept = parts;
    eng::PlanRequest request{from.model, from.precision, &from.optimizer, "reference", {}};
    request.ranks = eng::Ranks({0, 2, 0, 2});
    eng::Section section("zero", {{"fast", {false, "default", false}},
                                  {"gather", {std::string("exact"), "default", false}},
                                  {"sum", {std::string("exact"), "default", false}}});
    const eng::Sharding sharding = eng::make_sharding("half", bad, section, request.ranks);
    request.sharding = &sharding;
    eng::make_plan(request);
  };
  CHECK_NOTHROW(planned(1));
  for (uint32_t parts : {2u, 0u}) CHECK_THROWS_WITH(planned(parts), Catch::Contains("zero half: its move of role"));
}

TEST_CASE("a key that does nothing is a note") {
  using Notes = std::vector<std::string>;
  CHECK(setup({"zero.plugin=zero1", "zero.prefetch=2"}, 0, 2).notes == Notes{"zero.prefetch has no effect with zero1"});
  CHECK(setup({"zero.plugin=zero3", "zero.prefetch=2"}, 0, 2).notes.empty());
  CHECK(setup({"zero.plugin=zero3"}, 0, 1).notes ==
        Notes{"zero.bucket has no effect with one rank", "zero.plugin has no effect with one rank"});
}

TEST_CASE("one rank asks for no strategy and no communicator") {
  const auto s = setup({"zero.plugin=zero3"}, 0, 1);
  CHECK_FALSE(s.sharding);
  CHECK(sequence(s.plan).empty());
}
