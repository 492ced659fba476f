// SPDX-License-Identifier: Apache-2.0
// Observers that act between steps: a checkpoint, a line, an end, a failure. They change no number.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/session/runs.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace after_step_test {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

// A run of 8 steps with the observer and these options of it, and no checkpoint but the last.
RunRequest watched(const Folder& folder, const std::string& name, const std::string& options) {
  write_file(folder / (name + ".toml"),
             std::string(text) + "\n[[observers]]\nplugin = \"stopper\"\nevery = 3\n" + options);
  RunRequest out = folder.request(name + ".toml", {"train.steps=8", "checkpoint.every=0"});
  out.open.plugin_paths.emplace_back(FIXTURE_STOPPER);
  out.out = folder / name;
  return out;
}

std::vector<double> plain_losses(const Folder& folder) {
  Heard heard;
  RunRequest request = folder.request("config.toml", {"train.steps=8", "checkpoint.every=0"});
  request.out = folder / "plain";
  run(request, heard);
  return heard.losses;
}

}  // namespace

TEST_CASE("an observer ends a run at a loss, and the run goes on when it is started again", "[after_step]") {
  const Folder folder;
  const std::vector<double> plain = plain_losses(folder);
  REQUIRE(plain.size() == 8);
  const auto reached = std::find_if(plain.begin(), plain.end(), [&](double loss) { return loss <= plain[3]; });
  const auto steps = static_cast<size_t>(reached - plain.begin()) + 1;
  Heard heard;
  const RunEnd end = run(watched(folder, "run", fmt::format("at_most = {:.17g}\n", plain[3])), heard);
  CHECK(end.exit == Exit::done);
  CHECK(end.over == "observer stopper: low enough");
  CHECK(heard.losses.size() == steps);
  CHECK(end.last_checkpoint == fmt::format("step-{:08}", steps));
  const auto state = nlohmann::json::parse(text_of(folder / "run" / "state.json"));
  CHECK(state.at("status") == "done");
  CHECK(state.at("why") == end.over);
  // Each start makes one step at least, and together they are the run that nobody ended.
  std::vector<double> all = heard.losses;
  while (all.size() < plain.size()) {
    Heard more;
    RunRequest request = folder.request("run");
    request.open.plugin_paths.emplace_back(FIXTURE_STOPPER);
    CHECK(run(request, more).exit == Exit::done);
    REQUIRE(!more.losses.empty());
    all.insert(all.end(), more.losses.begin(), more.losses.end());
  }
  CHECK(all == plain);
}

TEST_CASE("an observer asks for a checkpoint and gives a line", "[after_step]") {
  const Folder folder;
  Heard heard;
  const RunEnd end = run(watched(folder, "run", "save = 3\ntell = 2\n"), heard);
  CHECK(end.over == "");
  CHECK(heard.losses == plain_losses(folder));
  const auto said = [&](const std::string& event) {
    return std::count(heard.events.begin(), heard.events.end(), event);
  };
  CHECK(said("saved step-00000003") == 1);
  CHECK(said("saved step-00000008") == 1);
  const std::string line = "observer stopper: rate 0.001 after step 2 of 8, evaluated";
  CHECK(said("alert 2 " + line) == 1);
  CHECK_THAT(text_of(folder / "run" / "logs" / "rank-00000.log"), Contains("step 2: " + line));
  // A run that saves nothing has no place for it.
  RunRequest nothing = watched(folder, "nothing", "save = 3\n");
  nothing.open.overrides.emplace_back("checkpoint.last=false");
  Heard none;
  run(nothing, none);
  CHECK(std::count(none.events.begin(), none.events.end(), "saving") == 0);
}

TEST_CASE("an observer that fails after a step ends the run with its text", "[after_step]") {
  const Folder folder;
  Heard heard;
  CHECK_THROWS_WITH(run(watched(folder, "run", "fail = 2\n"), heard),
                    Contains("observer stopper, after step 2: as it was asked to"));
  CHECK(heard.losses.size() == 2);
  CHECK(nlohmann::json::parse(text_of(folder / "run" / "state.json")).at("status") == "failed");
}

}  // namespace after_step_test
