// SPDX-License-Identifier: Apache-2.0
// A model with parameters that are tied, unused or without elements, from the plan to the checkpoint.
#include <algorithm>
#include <set>

#include "harness.hpp"

using namespace cli;

namespace {

// `engine` with the folder of the model's plugin.
Result odd_engine(const Scratch& scratch, Args args) {
  args.insert(args.begin(), {"--plugin-path", ODD_DIR});
  return engine(scratch, args);
}

// The training part of config(), for this model.
void write_config(const Scratch& scratch) {
  scratch.write("odd.toml",
                "[model]\nplugin = 'odd'\ntie_word_embeddings = true\n[data]\npaths = ['text.txt']\n"
                "[train]\nsteps = 4\nmicro_batch = 2\nsequence_length = 16\naccumulate = 2\n"
                "[optimizer]\nlearning_rate = 1e-2\nweight_decay = 0.1\n"
                "[checkpoint]\nevery = 2\nkeep = 0\n[device]\nthreads = 1\n");
}

}  // namespace

TEST_CASE("a model with unused parameters and some without elements is planned, trained, saved and resumed", "[cli]") {
  Scratch scratch;
  scratch.config();  // and its text
  write_config(scratch);
  const Json alone = Json::parse(odd_engine(scratch, {"plan", "odd.toml", "--json"}).out);
  CHECK(alone.at("parameters") > 20000);
  for (const char* strategy : {"none", "zero2", "zero3"}) {
    const Result plan =
        odd_engine(scratch, {"plan", "odd.toml", "--json", "--ranks", "4", "zero.plugin=" + std::string(strategy)});
    INFO(strategy << "\n" << plan.err);
    REQUIRE(plan.exit == 0);
    CHECK(Json::parse(plan.out).at("parameters") == alone.at("parameters"));
  }
  const Result run = odd_engine(scratch, {"run", "odd.toml", "--out", "run"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(odd_engine(scratch, {"ckpt", "verify", "run"}).exit == 0);

  // Every tensor is in the checkpoint, one without elements with its shape and one slice of nothing.
  const Json manifest = Json::parse(read(checkpoint(scratch / "run", 4) / "manifest.json"));
  std::set<std::string> empty;
  for (const Json& t : manifest.at("tensors")) {
    const auto shape = t.at("shape").get<std::vector<int64_t>>();
    if (std::count(shape.begin(), shape.end(), 0) == 0) continue;
    CHECK(t.at("slices").size() == 1);
    CHECK(t.at("slices").at(0).at("count") == 0);
    empty.insert(t.at("name").get<std::string>() + " " + t.at("role").get<std::string>());
  }
  CHECK(empty.size() == 3 * 8);  // weights and two states
  CHECK(empty.count("ghosts.empty exp_avg") == 1);

  // Resumed from its middle it ends with the same result. The run knows the folders of its plugins.
  const std::map<std::string, std::string> end = tensors(scratch / "run", 4);
  REQUIRE(engine(scratch, {"run", "run", "--resume", "2"}).exit == 0);
  CHECK((tensors(scratch / "run", 4) == end));
  CHECK(engine(scratch, {"eval", "run"}).exit == 0);
  CHECK(engine(scratch, {"plan", "run"}).exit == 0);

  // Without one of them it is another model.
  const Result less =
      engine(scratch, {"run", "run", "model.plain=true", "train.steps=6", "--allow-change", "model.plain"});
  INFO(less.err);
  CHECK(less.exit == 9);
  CHECK(has(less.err, "`unused.both` (parameter): this run has no such tensor"));
}
