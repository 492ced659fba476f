// SPDX-License-Identifier: Apache-2.0
// The step over time: the simulation that the estimate is made of.
#include "session/report/timeline.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace timeline_test {

using namespace planned;

namespace {

struct Drawn {
  eng::Setup setup;
  eng::Machine machine;
  eng::Timeline timeline;
};

// Two nodes of two ranks, for some words of a configuration.
Drawn drawn(const std::string& strategy, const Words& more, uint32_t ranks = 4) {
  Words words = {"comm.describe={bandwidth='1GB', latency='5us', ranks_per_node=2, node_bandwidth='4GB', flops=1e10}",
                 "train.accumulate=3"};
  words.insert(words.end(), more.begin(), more.end());
  Drawn out{setup_of("tiny", strategy, ranks, words), {}, {}};
  out.machine = eng::machine_of(config_of("tiny", strategy, words).section("comm"), out.setup.target);
  out.timeline = eng::timeline_of(out.setup.plan, out.machine);
  return out;
}

std::string line_of(const std::string& text, const std::string& lane) {
  const size_t at = text.find("\n  " + lane + " ");
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

}  // namespace

TEST_CASE("a timeline ends when the estimated step does, and has each action once") {
  for (const char* strategy : {"none", "zero3"})
    for (const char* reduce : {"train.reduce=micro_batch", "train.reduce=step"}) {
      INFO(strategy << " " << reduce);
      const Drawn d = drawn(strategy, {reduce});
      CHECK(d.timeline.seconds == Approx(eng::step_times(d.setup.plan, d.machine).step).epsilon(1e-12));
      const auto& segments = d.setup.plan.program("train").segments;
      REQUIRE(d.timeline.stretches.size() == segments.size());
      double at = 0;
      for (size_t s = 0; s < segments.size(); ++s) {
        const eng::Stretch& stretch = d.timeline.stretches[s];
        CHECK(stretch.start == Approx(at).margin(1e-15));
        at += stretch.seconds * stretch.repeat;
        REQUIRE(stretch.slices.size() == segments[s].actions.size());
        for (size_t a = 0; a < stretch.slices.size(); ++a) {
          const eng::Slice& slice = stretch.slices[a];
          CHECK(slice.call == segments[s].actions[a].call);
          CHECK(slice.start >= stretch.start);
          CHECK(slice.start + slice.seconds <= (stretch.start + stretch.seconds) * (1 + 1e-12));
          // It begins after all that it waits for.
          for (const uint32_t w : segments[s].actions[a].waits)
            CHECK(slice.start >= (stretch.slices[w].start + stretch.slices[w].seconds) * (1 - 1e-12));
        }
      }
      CHECK(at == Approx(d.timeline.seconds));
    }
}

TEST_CASE("a chart has the lanes that are used, over the whole step") {
  const Drawn far = drawn("zero3", {});
  const std::string text = eng::timeline_text(far.timeline, far.setup.plan, 60);
  CHECK_THAT(text, Contains("|first") && Contains("|rest x 2") && Contains("F forward"));
  CHECK_THAT(text, Contains("eng.linear/1") && Contains("eng.all_gather/1"));
  const std::string compute = line_of(text, "compute"), network = line_of(text, "network");
  CHECK(compute.size() == 13 + 60);
  CHECK(network.size() == 13 + 60);
  CHECK(compute.find('F') < compute.find('B'));
  CHECK_THAT(network, Contains("G") || Contains("g"));
  CHECK(line_of(text, "link") == "");  // each group has members of both nodes
  CHECK(line_of(text, "host") == "");
  const Drawn near = drawn("zero3", {}, 2);
  const std::string inside = eng::timeline_text(near.timeline, near.setup.plan, 60);
  CHECK(line_of(inside, "network") == "");
  CHECK(line_of(inside, "link") != "");
  CHECK(eng::timeline_text({}, near.setup.plan) == "timeline: no action takes any time\n");
}

TEST_CASE("a trace has the same slices, and its end") {
  const Drawn d = drawn("zero2", {});
  for (const size_t most : {size_t{1} << 20, size_t{1}}) {
    const auto json = nlohmann::json::parse(eng::timeline_trace(d.timeline, d.setup.plan, most));
    double end = 0;
    size_t slices = 0, segments = 0;
    for (const auto& event : json["traceEvents"]) {
      if (event["ph"] != "X") continue;
      end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
      const bool segment = event["tid"] == eng::lane_count;
      ++(segment ? segments : slices);
      if (!segment) CHECK(event["args"].contains("block"));
    }
    CHECK(end == Approx(1e6 * d.timeline.seconds));
    CHECK(segments == 4);  // first, two of rest, update
    size_t timed = 0;
    for (const eng::Stretch& stretch : d.timeline.stretches)
      for (const eng::Slice& slice : stretch.slices)
        if (slice.seconds > 0) timed += most > 1 ? stretch.repeat : 1;
    CHECK(slices == timed);
  }
}

}  // namespace timeline_test
