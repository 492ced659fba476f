// SPDX-License-Identifier: Apache-2.0
// Texts that observers ask for between steps: those of the weights after the step, planned, without effect on the run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>

#include "session/planning/fits.hpp"
#include "session/report/context.hpp"
#include "session/text/decoder.hpp"
#include "tests/session/runs.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace observer_texts_test {
namespace {

// A run of 4 steps with the observer and these keys of its entry.
RunRequest written(const Folder& folder, const std::string& name, const std::string& keys) {
  write_file(folder / (name + ".toml"), std::string(text) + "\n[[observers]]\nplugin = \"writer\"\n" + keys);
  RunRequest out = folder.request(name + ".toml");
  out.open.plugin_paths.emplace_back(FIXTURE_WRITER);
  out.out = folder / name;
  return out;
}

// The ids that the observer told, of a run that did not fail.
std::string told(const Folder& folder, const std::string& name, const std::string& keys, Heard& heard) {
  run(written(folder, name, keys), heard);
  for (const std::string& event : heard.events)
    if (const size_t at = event.find("observer writer: "); at != event.npos) return event.substr(at + 17);
  return "";
}
std::string told(const Folder& folder, const std::string& name, const std::string& keys) {
  Heard heard;
  return told(folder, name, keys, heard);
}

// The most likely ids after 5 6 7, with the weights of a checkpoint.
std::string expected(const RunRequest& request, const std::string& checkpoint, int64_t length, int64_t tokens) {
  OpenRequest open = request.open;
  open.target = request.out;
  const Opened opened = open_config(open);
  Setup setup = make_setup(opened.config, *opened.registry, length);
  Decoder decoder(opened.config, *opened.registry, std::make_shared<const Setup>(std::move(setup)), length, "");
  load_weights(request.out / "checkpoints" / checkpoint, pretrained_table(opened.config, *opened.registry),
               parameters(decoder.setup().plan), decoder.fill());
  decoder.ready();
  std::vector<int32_t> next = {5, 6, 7};
  std::string out;
  for (int64_t k = 0; k < tokens; ++k) {
    decoder.feed(next);
    const auto logits = decoder.logits().first(256);  // the ids of data.tokenizer
    next = {static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
    out += (k ? " " : "") + std::to_string(next[0]);
  }
  return out;
}

}  // namespace

TEST_CASE("an observer gets texts of the weights after the step, and they change no loss", "[observer_texts]") {
  const Folder folder;
  Heard plain, heard;
  RunRequest without = folder.request("config.toml");
  without.out = folder / "plain";
  run(without, plain);
  for (const char* step : {"2", "4"}) {
    const std::string name = std::string("at") + step;
    heard = {};
    const std::string ids = told(folder, name, fmt::format("at = {}\ntokens = 12\nsample_length = 24\n", step), heard);
    CHECK(heard.losses == plain.losses);
    CHECK(ids == expected(written(folder, name, fmt::format("at = {}\nsample_length = 24\n", step)),
                          fmt::format("step-0000000{}", step), 24, 12));
  }
}

TEST_CASE("draws of a text depend on its seed alone", "[observer_texts]") {
  const Folder folder;
  const std::string keys = "tokens = 12\nsample_length = 24\ntemperature = 2.0\nprompt = \"plan \"\nseed = ";
  const std::string one = told(folder, "one", keys + "1\n");
  CHECK(std::count(one.begin(), one.end(), ' ') == 11);
  CHECK(told(folder, "again", keys + "1\n") == one);
  CHECK(told(folder, "two", keys + "2\n") != one);
}

TEST_CASE("a text that is not planned is refused with the key to set", "[observer_texts]") {
  const Folder folder;
  Heard heard;
  CHECK_THROWS_WITH(run(written(folder, "none", ""), heard),
                    Contains("observer writer asks for a text, and none is planned: set sample_length of its "
                             "[[observers]] entry"));
  CHECK_THROWS_WITH(run(written(folder, "short", "tokens = 12\nsample_length = 14\n"), heard),
                    Contains("observer writer asks for a text of 3 and 12 new tokens, its sample_length is 14"));
  CHECK_THROWS_WITH(run(written(folder, "nothing", "tokens = 0\nsample_length = 14\n"), heard),
                    Contains("tokens = 0 is below 1"));
  // It may do without: a fault of the request ends nothing.
  heard = {};
  run(written(folder, "ignores", "ignore = true\n"), heard);
  CHECK(heard.losses.size() == 4);
  CHECK(told(folder, "exact", "tokens = 12\nsample_length = 15\n") != "");
}

TEST_CASE("the memory of texts is a part of the plan", "[observer_texts]") {
  const Folder folder;
  const auto planned = [&](const std::string& name, const std::string& keys) {
    const Opened opened = open_config(written(folder, name, keys).open);
    const Setup setup = make_plan_only(opened.config, *opened.registry);
    const ReportContext context = report_context(setup, opened.config);
    CHECK((plan_text(setup.plan, context).find("texts for observers") != std::string::npos) == !!setup.sampling);
    CHECK((plan_json(setup.plan, context).find("\"sampling_bytes\"") != std::string::npos) == !!setup.sampling);
    return std::tuple(peak_of(setup.plan, beside(setup)).host, beside(setup).sampling.device, setup.plan.parameters);
  };
  const auto [plain, nothing, parameters] = planned("plain", "");
  const auto [shorter, some, same] = planned("shorter", "sample_length = 32\n");
  const auto [longer, more, also] = planned("longer", "sample_length = 512\n");
  CHECK(nothing == 0);
  CHECK(some > static_cast<uint64_t>(parameters) * 4);
  CHECK(shorter >= plain + some);
  // Keys and values of one layer, of one head at least.
  CHECK(more - some >= uint64_t{512 - 32} * 2 * 8 * 4);
  CHECK(longer - shorter >= more - some);
  RunRequest idle = folder.request("idle.toml");
  write_file(folder / "idle.toml", std::string(text) + "\n[[observers]]\nplugin = \"stats\"\nsample_length = 24\n");
  idle.open.plugin_paths.push_back(std::filesystem::path(ENGINE_PLUGIN_DIR) / "observe");
  const Opened stats = open_config(idle.open);
  CHECK_THROWS_WITH(make_plan_only(stats.config, *stats.registry),
                    Contains("observer stats does nothing between steps"));
  const Opened opened = open_config(written(folder, "too_long", "sample_length = 1000000\n").open);
  CHECK_THROWS_WITH(make_plan_only(opened.config, *opened.registry),
                    Contains("sample_length = 1000000 is more than the") && Contains("positions of model llama"));
}

}  // namespace observer_texts_test
