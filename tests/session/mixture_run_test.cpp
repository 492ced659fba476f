// SPDX-License-Identifier: Apache-2.0
// A run on a mixture of sources: resumed, evaluated, and what its metrics say.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/session/runs.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Matchers::Contains;

namespace {

const char* const mixture = R"([[data.sources]]
name = "first"
paths = ["text.txt"]
weight = 3

[[data.sources]]
name = "second"
paths = ["other.txt"]
separator = ""
weight = 1
)";

// The configuration of these tests with a mixture in place of its file.
std::string mixed() {
  std::string out = text;
  const std::string paths = "paths = [\"text.txt\"]\n";
  out.erase(out.find(paths), paths.size());
  return out + mixture;
}

std::vector<nlohmann::json> lines(const std::filesystem::path& run) {
  std::vector<nlohmann::json> out;
  std::istringstream in(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace

TEST_CASE("a run with micro-batches of one sample tells the loss of each source", "[mixture]") {
  Folder folder;
  std::string other;
  for (int k = 0; k < 900; ++k) other += static_cast<char>('a' + k * k % 23);
  write_file(folder / "other.txt", other);
  write_file(folder / "mixed.toml", mixed());
  Heard each, together;
  const std::vector<std::string> one = {"train.micro_batch=1", "train.accumulate=4", "train.eval_every=0"};
  const RunEnd done =
      run(folder.request("mixed.toml", {one[0], one[1], one[2], "run.out=" + (folder / "one").string()}), each);
  REQUIRE(done.exit == Exit::done);
  double distance = 0;
  for (const auto& line : lines(done.directory)) {
    double sum = 0, tokens = 0;
    for (const char* name : {"first", "second"}) {
      const auto& source = line.at("sources").at(name);
      REQUIRE(source.contains("loss") == (source.at("tokens").get<int64_t>() > 0));
      if (!source.contains("loss")) continue;
      sum += source.at("loss").get<double>() * source.at("tokens").get<double>();
      tokens += source.at("tokens").get<double>();
      distance = std::max(distance, std::abs(source.at("loss").get<double>() - line.at("loss").get<double>()));
    }
    CHECK(sum / tokens == Approx(line.at("loss").get<double>()).epsilon(1e-9));
  }
  CHECK(distance > 1e-3);
  // The first step's loss of a source is that of its samples alone.
  const std::string alone =
      "data.sources=[{name='first', paths=['text.txt'], weight=1}, {name='second', paths=['other.txt'], separator='', "
      "weight=0}]";
  const RunEnd first = run(folder.request("mixed.toml", {one[0], "train.accumulate=3", one[2], alone,
                                                         "run.out=" + (folder / "two").string()}),
                           together);
  REQUIRE(first.exit == Exit::done);
  CHECK(together.losses[0] == lines(done.directory).at(0).at("sources").at("first").at("loss").get<double>());
}

TEST_CASE("a run on a mixture resumes bit for bit and says what each source had", "[mixture]") {
  Folder folder;
  std::string other;
  for (int k = 0; k < 900; ++k) other += static_cast<char>('a' + k * k % 23);
  write_file(folder / "other.txt", other);
  write_file(folder / "mixed.toml", mixed());
  Heard whole, begun, resumed;
  const RunEnd at_once = run(folder.request("mixed.toml", {"run.out=" + (folder / "one").string()}), whole);
  REQUIRE(at_once.exit == Exit::done);
  REQUIRE(whole.losses.size() == 4);
  const auto said = [&](const std::string& what) {
    return std::any_of(whole.notes.begin(), whole.notes.end(), [&](const auto& n) { return n.find(what) != n.npos; });
  };
  CHECK(said("source first: 7"));
  CHECK(said("% of the samples; an epoch of the mixture reads it"));
  const auto steps = lines(at_once.directory);
  int64_t first = 0, second = 0;
  for (const auto& line : steps) {
    const auto& sources = line.at("sources");
    first += sources.at("first").at("samples").get<int64_t>(),
        second += sources.at("second").at("samples").get<int64_t>();
    CHECK(sources.at("first").at("tokens").get<int64_t>() + sources.at("second").at("tokens").get<int64_t>() == 32);
    CHECK(line.contains("eval_sources") == line.contains("eval_loss"));
  }
  CHECK(first == 6);
  CHECK(second == 2);
  // The evaluation is the mean over the labels of both.
  const double a = steps.at(1).at("eval_sources").at("first"), b = steps.at(1).at("eval_sources").at("second"),
               all = steps.at(1).at("eval_loss");
  CHECK(a != b);
  CHECK((all - a) * (all - b) < 0);

  begun.stop_after = 2;
  const RunEnd stopped = run(folder.request("mixed.toml", {"run.out=" + (folder / "two").string()}), begun);
  REQUIRE(stopped.exit == Exit::stopped);
  const RunEnd done = run(folder.request(stopped.directory.string()), resumed);
  REQUIRE(done.exit == Exit::done);
  REQUIRE(resumed.losses.size() == 2);
  CHECK(resumed.losses[0] == whole.losses[2]);
  CHECK(resumed.losses[1] == whole.losses[3]);
  const auto again = lines(stopped.directory);
  REQUIRE(again.size() == steps.size());
  for (std::size_t k = 0; k < steps.size(); ++k)
    for (const char* key : {"loss", "grad_norm", "sources"}) CHECK(again[k].at(key) == steps[k].at(key));
  // Other shares are other data.
  Heard none;
  const std::string entries =
      "data.sources=[{name='first', paths=['text.txt'], weight=2}, {name='second', paths=['other.txt'], separator='', "
      "weight=1}]";
  CHECK_THAT(refusal(Exit::usage,
                     [&] {
                       run(folder.request(stopped.directory.string(), {entries, "train.steps=6"}), none);
                     }),
             Contains("data.sources"));
}
