// SPDX-License-Identifier: Apache-2.0
// engine run --trace.
#include <set>

#include "harness.hpp"

using namespace cli;

namespace {

// The steps of the slices of the queues; each slice is checked to lie inside its step.
std::set<int64_t> steps_of(const Json& trace) {
  std::map<int64_t, std::pair<double, double>> spans;
  for (const Json& e : trace.at("traceEvents"))
    if (e.at("name").get<std::string>().substr(0, 5) == "step ")
      spans[std::stoll(e.at("name").get<std::string>().substr(5))] = {e.at("ts"), e.at("dur")};
  std::set<int64_t> out;
  double last = 0;  // one queue: what comes next begins later
  for (const Json& e : trace.at("traceEvents")) {
    if (!e.contains("args") || !e.at("args").contains("step")) continue;
    const int64_t step = e.at("args").at("step");
    out.insert(step);
    const double ts = e.at("ts"), dur = e.at("dur");
    CHECK(ts >= last);
    last = ts + dur;
    CHECK(ts >= spans.at(step).first);
    CHECK(ts + dur <= spans.at(step).first + spans.at(step).second + 1e-2);
  }
  return out;
}

}  // namespace

TEST_CASE("--trace writes when the actions of some steps ran", "[cli]") {
  Scratch scratch;
  scratch.config();
  const auto traced = [&](const std::string& flag, const char* out) {
    const Result run = engine(scratch, {"run", flag, "config.toml", "--out", out});
    INFO(run.err);
    CHECK(run.exit == 0);
    return Json::parse(read(scratch / out / "trace-rank-00000.json"));
  };
  const Json trace = traced("--trace", "a");
  CHECK(steps_of(trace) == std::set<int64_t>{2, 3, 4});
  CHECK(has(trace.dump(), R"("name":"eng.linear/1")"));
  CHECK(has(trace.dump(), R"("name":"compute")"));
  CHECK(has(trace.dump(), R"("name":"rank 0")"));
  CHECK(steps_of(traced("--trace=7-90", "b")) == std::set<int64_t>{7, 8});  // what there was
  const Result bad = engine(scratch, {"run", "--trace=4-2", "config.toml", "--out", "c"});
  CHECK(bad.exit == 2);
  CHECK(has(bad.err, "--trace=4-2 names no steps"));
  CHECK_FALSE(fs::exists(scratch / "c"));
}
