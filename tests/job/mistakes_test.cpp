// SPDX-License-Identifier: Apache-2.0
// Jobs that break their contract, and users who ask for what there is not: each is told by name.
#include <signal.h>

#include "analyses.hpp"

using namespace job_test;

TEST_CASE("the faults of a job are told with its name", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const std::pair<const char*, const char*> faults[] = {
      {"create", "[job] fixture: job.wrong: not today"},
      {"programs", "job fixture has 65 programs, the limit is 64"},
      {"shaped", "job fixture gives state saved a shape, or wants parameters whole"},
      {"state name", "job fixture gives a state the name site, which the engine uses"},
      {"two values", "job fixture gives two values the name done"},
      {"values", "job fixture has 1000 values, the limit is 64"},
      {"value", "job fixture gives value scratch a shape that"},
      {"emit", "job fixture: it cannot do that"},
      {"gradient", "job fixture: eng.scale/1: output 0 is a value that may only be read"},
      {"master", "job fixture: eng.scale/1: output 0 is a value that may only be read"},
      {"site", "job fixture, output 0 of eng."},
      {"site type", "a site's tensor is i64, f32 or f64"},
      {"writes value", "eng.scale/1: output 0 is a value that may only be read"},
      {"numbers", "job fixture: program 0 is given 100 numbers, the limit is 16"},
      {"program", "job fixture: there is no program 4: the job has 4"},
      {"windows", "job fixture: a gradient of 4 windows from window 1073741824 on: there are"},
      {"split", "job fixture: there is no split 3 of the data"},
      {"index", "job fixture: there is no number 99 of 3 values"},
      {"range", "job fixture: elements 100 to 101 of the value job.fixture.losses: it has 100 elements"},
      {"write", "job fixture: a gradient may not be written"},
      {"file", "job fixture: `../x` is no name for a result"},
      {"own file", "job fixture: `state.json` is no name for a result"},
      {"positions", "job fixture: losses of positions need ENG_JOB_POSITIONS"},
      {"field", "job fixture: model llama reads no field `org.example.none` of the batch"},
      {"window", "job fixture: there is no window 1073741824: there are"},
      {"error", "job fixture: made up"},
      {"mute", "job fixture: failed with status 13 and no text"},
  };
  int k = 0;
  for (const auto& [wrong, said] : faults) {
    const std::string out = "out" + std::to_string(k++);
    const Result result =
        engine(scratch, words({"config.toml", "--job", "fixture", "--out", out, std::string("job.wrong=") + wrong}));
    INFO(wrong << ": " << result.err);
    CHECK(result.exit != 0);
    CHECK(result.exit != 1);
    CHECK_FALSE(result.killed);
    CHECK(has(result.err, said));
    if (fs::exists(scratch / out / "state.json")) CHECK(state(scratch / out).at("status") == "failed");
  }
}

TEST_CASE("a job that goes on after it was asked to stop gets no further", "[job]") {
  Scratch scratch;
  scratch.config();
  Child child(scratch, words({"config.toml", "--job", "fixture", "--out", "out", "job.turns=50", "job.pause=200",
                              "job.wrong=goes on"}));
  REQUIRE(child.wait_for_path(scratch / "out" / "checkpoints" / "step-00000001" / "manifest.json"));
  child.signal(SIGINT);
  const Result result = child.wait();
  INFO(result.err);
  CHECK(result.exit == 3);
  CHECK(has(result.err, "job fixture: it was asked to stop, and its `run` returned ENG_OK instead of ENG_UNAVAILABLE"));
}

TEST_CASE("users are told what an analysis needs", "[job]") {
  Scratch scratch;
  scratch.config();
  const auto refused = [&](const Args& args, int exit, const char* said) {
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == exit);
    CHECK(has(result.err, said));
  };
  refused(words({"config.toml", "--job", "fixtures"}), 2, "no job plugin named `fixtures`");
  refused(words({"config.toml", "--job", "fixture", "job.turns=0"}), 2, "`turns` must be at least 1");
  refused(words({"config.toml", "--job", "fixture", "job.turn=1"}), 2, "unknown key `turn`");
  refused({"--plugin-path", FIXTURE_JOB_DIR, "check", "config.toml", "job.turns=1"}, 2,
          "`turns` belongs to plugin `fixture`");
  refused(words({"config.toml", "--job", "fixture", "data.validation=0"}), 2, "data.validation: nothing is held out");
  refused(words({"config.toml", "--job", "fixture", "precision.plugin=fp16"}), 2,
          "precision.plugin = \"fp16\" scales the loss");
  refused(words({"config.toml", "--job", "fixture", "--max-time", "soon"}), 2, "--max-time soon is not a duration");
  refused(words({"config.toml", "--job", "fixture", "--fit", "1GiB"}, "plan"), 2, "it does not know jobs");
  good(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  refused(words({"config.toml", "--job", "fixture", "--out", "run"}), 2, "run is a run, not an analysis");
  analysed(scratch, "done");
  refused({"--plugin-path", FIXTURE_JOB_DIR, "run", "done"}, 2, "engine analyse done");
  refused(words({"done", "--out", "other"}), 2, "--out is for a new analysis");
  refused(words({"done", "train.seed=5"}), 2, "train.seed = 1 before, now 5");
  refused(words({"done", "job.rate=1.0"}), 2, "job.rate = 0.01 before, now 1.0");
  scratch.write("text.txt", "another text " + std::string(5000, 'x') + "\n");
  const Result other = engine(scratch, words({"done"}));
  INFO(other.err);
  CHECK(other.exit == 4);
  CHECK(has(other.err, "was written with other data"));
}

TEST_CASE("--max-time stops an analysis as a signal does", "[job]") {
  Scratch scratch;
  scratch.config();
  const Result result = engine(scratch, words({"config.toml", "--job", "fixture", "--out", "out", "job.turns=90",
                                               "job.pause=100", "--max-time", "1s"}));
  INFO(result.err);
  CHECK(result.exit == 75);
  CHECK(has(result.err, "stopped by --max-time; resume with:  engine analyse out"));
}
