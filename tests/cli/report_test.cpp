// SPDX-License-Identifier: Apache-2.0
// engine report, and what a run writes for TensorBoard.
#include "harness.hpp"

using namespace cli;

TEST_CASE("a run and its resumption become one page; the plan's peaks are in run.json", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=4", "log.tensorboard=true"}).exit == 0);
  REQUIRE(engine(scratch, {"run", "run", "train.steps=6", "schedule.kind=wsd"}).exit == 0);
  const Json planned = Json::parse(read(scratch / "run" / "run.json")).at("planned");
  CHECK(planned.at("device_peak_bytes") > 0);
  CHECK(planned.at("host_peak_bytes") >= planned.at("device_peak_bytes"));
  CHECK(names(scratch / "run" / "tensorboard").size() == 2);

  const Result first = engine(scratch, {"report", "run"});
  INFO(first.err);
  CHECK(first.exit == 0);
  CHECK(has(first.err, "wrote report.html: 1 run,"));
  const std::string page = read(scratch / "report.html");
  CHECK(has(page, "as planned"));
  CHECK(has(page, "at steps 5"));
  // Again, with the run twice, to stdout as well.
  CHECK(engine(scratch, {"report", "run", "run"}).exit == 0);
  CHECK(has(engine(scratch, {"report", "run", "--out", "-"}).out, "<h1>run</h1>"));
  // A file that is no report stays.
  const Result other = engine(scratch, {"report", "run", "--out", "config.toml"});
  CHECK(other.exit == 2);
  CHECK(has(other.err, "config.toml exists and is no report"));
}

TEST_CASE("a run without a step, and what is no run, are reported", "[cli]") {
  Scratch scratch;
  fs::create_directories(scratch / "empty");
  scratch.write("empty/state.json", "{}");
  const Result empty = engine(scratch, {"report", "empty"});
  CHECK(empty.exit == 4);
  CHECK(has(empty.err, "note: empty has no step yet"));
  CHECK(has(empty.err, "no run has taken a step"));
  const Result none = engine(scratch, {"report", "nowhere"});
  CHECK(none.exit == 2);
  CHECK(has(none.err, "nowhere is not a run"));
  CHECK(!fs::exists(scratch / "report.html"));
}

TEST_CASE("the rates of a schedule of a plugin reach the updates, also after a resumption", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args wsd = {"schedule.kind=wsd", "schedule.warmup_steps=2", "schedule.decay=linear", "schedule.decay_steps=4",
                    "optimizer.learning_rate=8e-3"};
  const auto run = [&](Args args) {
    args.insert(args.begin(), "run");
    const Result r = engine(scratch, args);
    INFO(r.err);
    REQUIRE(r.exit == 0);
    return r;
  };
  Args whole = {"config.toml", "--out", "whole", "checkpoint.every=4"};
  whole.insert(whole.end(), wsd.begin(), wsd.end());
  run(whole);
  const std::vector<double> expected = {4e-3, 8e-3, 8e-3, 8e-3, 6e-3, 4e-3, 2e-3, 0};
  const std::vector<double> got = column(scratch / "whole", "lr");
  REQUIRE(got.size() == 8);
  for (size_t k = 0; k < 8; ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-18));
  // Stopped before the decay begins, made longer by two steps: what is common has the same numbers.
  run({"whole", "--resume", "4", "train.steps=8"});
  CHECK(column(scratch / "whole", "lr") == got);
  const Result longer = run({"whole", "--resume", "4", "train.steps=10"});
  CHECK(has(longer.err, "resumes from step-00000004"));
  const std::vector<double> rates = column(scratch / "whole", "lr");
  REQUIRE(rates.size() == 10);
  CHECK(rates[5] == 8e-3);  // the decay begins two updates later
  CHECK(rates[8] == Approx(2e-3));
}
