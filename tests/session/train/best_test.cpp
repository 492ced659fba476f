// SPDX-License-Identifier: Apache-2.0
// The best checkpoint and the early end of a run, both by its evaluations.
#include "session/checkpoint/best.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "session/config/problem_text.hpp"
#include "session/run/weights.hpp"
#include "tests/session/built.hpp"
#include "tests/session/runs.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Matchers::Contains;

namespace best_test {
namespace {

Config asked(const std::string& train, const std::string& checkpoint) {
  return built_config("[model]\nplugin = \"llama\"\npreset = \"tiny\"\n[train]\neval_every = 2\n" + train +
                      "[checkpoint]\n" + checkpoint);
}

std::vector<std::string> names(const std::filesystem::path& run) {
  std::vector<std::string> out;
  for (const auto& row : list_checkpoints(run / "checkpoints"))
    out.push_back(row.path.filename().string() + (row.best ? " best" : ""));
  return out;
}

nlohmann::json json(const std::filesystem::path& file) {
  return nlohmann::json::parse(read_file(file));
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("best: the lowest loss, and gains that are large enough", "[best]") {
  const Config config = asked("early_stop_patience = 2\nearly_stop_min_delta = 0.1\n", "best = true\n");
  Progression one(config, {});
  CHECK(one.best() == -1);
  one.add(2, 3.0);
  one.add(4, 2.95);  // lower, but no gain
  CHECK(one.best() == 4);
  CHECK(one.over().empty());
  // Resumed here, it says the same as without a stop.
  Progression::Facts facts;
  one.write(facts);
  CHECK(best_step(facts) == 4);
  Progression two(config, facts);
  for (Progression* p : {&one, &two}) {
    CHECK(p->best() == 4);
    p->add(6, 2.85);  // a gain: below 3.0 by more than 0.1
    p->add(8, NAN);
    CHECK(p->over().empty());
    p->add(10, 2.8);
    CHECK(p->best() == 10);
    CHECK(p->over() == "early stop: none of the last 2 evaluations was below 2.8500 of step 6 by more than 0.1");
  }
  Progression::Facts a, b;
  one.write(a), two.write(b);
  CHECK(a == b);
  // An equal loss is not better, and a run without finite losses has no best.
  Progression equal(config, {});
  equal.add(2, NAN);
  CHECK(equal.best() == -1);
  equal.add(4, 1.0), equal.add(6, 1.0);
  CHECK(equal.best() == 4);
  Progression never(config, {});
  never.add(2, NAN), never.add(4, INFINITY);
  CHECK(never.over() == "early stop: none of the last 2 evaluations was finite");
  // Without a request nothing is kept, so that checkpoints have the bytes of before.
  Progression off(asked("", ""), a);
  off.add(12, 1.0);
  Progression::Facts none;
  off.write(none);
  CHECK(none.empty());
  CHECK(off.best() == -1);
  CHECK(off.over().empty());
  for (const char* damaged : {"", "x", "4", "4 ", "4 x", "-1 2", "4 2 3", "4 nan"})
    CHECK(best_step({{"best", damaged}}) == -1);
}

TEST_CASE("best: without evaluations it is refused", "[best]") {
  const auto problem = [](const char* text) {
    try {
      built_config(std::string("[model]\nplugin = \"llama\"\npreset = \"tiny\"\n") + text);
    } catch (const ConfigError& e) {
      return tell(e);
    }
    return std::string();
  };
  CHECK_THAT(problem("[checkpoint]\nbest = true\n"), Contains("E0113") && Contains("set train.eval_every as well"));
  CHECK_THAT(problem("[train]\nearly_stop_patience = 3\n"), Contains("E0113") && Contains("there are no evaluations"));
  CHECK(asked("early_stop_min_delta = 0.1\n", "").notes().size() == 1);
}

TEST_CASE("best: it stays beside the newest checkpoints, until there is a better one", "[best]") {
  const Folder folder;
  Heard first, rest;
  // The weights do not change, so that no evaluation is better than the first.
  const std::vector<std::string> keys = {"checkpoint.best=true", "checkpoint.keep=1", "checkpoint.every=3",
                                         "train.steps=8", "optimizer.learning_rate=1e-30"};
  RunRequest request = folder.request("config.toml", keys);
  request.out = folder / "run";
  run(request, first);
  CHECK(names(folder / "run") == Names{"step-00000002 best", "step-00000008"});
  CHECK(std::count(first.events.begin(), first.events.end(), "saved step-00000004") == 0);
  CHECK(find_weights(folder / "run" / "checkpoints" / "best").filename() == "step-00000002");
  CHECK(weights_kind(folder / "run" / "checkpoints" / "best") == WeightsKind::checkpoint);
  // Stopped between two evaluations, and resumed.
  Heard half, other;
  request.out = folder / "half";
  half.stop_after = 5;
  CHECK(run(request, half).exit == Exit::stopped);
  run(folder.request("half"), other);
  CHECK(names(folder / "half") == names(folder / "run"));
  // Then it learns.
  run(folder.request("run", {"train.steps=10", "optimizer.learning_rate=1e-2"}), rest);
  CHECK(names(folder / "run") == Names{"step-00000010 best"});
  // Without the key the newest ones stay, whatever was best.
  run(folder.request("half", {"train.steps=10", "checkpoint.best=false"}), other);
  CHECK(names(folder / "half") == Names{"step-00000010"});
  CHECK(weights_kind(folder / "half" / "checkpoints" / "best") == WeightsKind::none);
}

TEST_CASE("early stop: the run is done, and says why", "[best]") {
  const Folder folder;
  const std::vector<std::string> keys = {"train.steps=20", "train.early_stop_patience=2",
                                         "train.early_stop_min_delta=100.0", "checkpoint.every=0"};
  RunRequest request = folder.request("config.toml", keys);
  request.out = folder / "run";
  Heard whole;
  const RunEnd end = run(request, whole);
  CHECK(end.exit == Exit::done);
  CHECK_THAT(end.over, Contains("early stop: none of the last 2 evaluations was below ") &&
                           Contains(" of step 2 by more than 100"));
  CHECK(whole.losses.size() == 6);  // evaluated after 2, 4 and 6
  CHECK(json(folder / "run" / "state.json").at("status") == "done");
  CHECK(json(folder / "run" / "state.json").at("why") == end.over);
  CHECK(json(folder / "run" / "state.json").at("last_checkpoint") == "step-00000006");
  CHECK(json(folder / "run" / "run.json").at("ended").at("why") == end.over);
  // A stop and a resumption change nothing.
  request.out = folder / "half";
  Heard half, rest;
  half.stop_after = 5;
  CHECK(run(request, half).exit == Exit::stopped);
  const RunEnd later = run(folder.request("half"), rest);
  CHECK(later.exit == Exit::done);
  CHECK(later.over == end.over);
  half.losses.insert(half.losses.end(), rest.losses.begin(), rest.losses.end());
  CHECK(half.losses == whole.losses);
  // It is over, until more patience is given.
  Heard none, more;
  CHECK(run(folder.request("run"), none).over == end.over);
  CHECK(none.losses.empty());
  CHECK(run(folder.request("run", {"train.early_stop_patience=3"}), more).exit == Exit::done);
  CHECK(more.losses.size() == 2);
  CHECK(json(folder / "run" / "run.json").at("earlier").at(0).at("ended").at("why") == end.over);
}

}  // namespace best_test
