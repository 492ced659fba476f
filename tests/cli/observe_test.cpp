// SPDX-License-Identifier: Apache-2.0
// Terms of the loss and observers as users meet them: metrics.jsonl, the progress line, evaluation, mistakes.
#include <cmath>
#include <set>
#include <sstream>

#include "harness.hpp"

using namespace cli;

TEST_CASE("a z loss is a term beside the cross-entropy, in training and evaluation", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=4"});
  CHECK_FALSE(metrics(scratch / "plain")[0].contains("terms"));
  const Result run = good(scratch, {"run", "config.toml", "--out", "run", "train.steps=4", "loss.z_loss=0.01"});
  for (const Json& step : metrics(scratch / "run")) {
    const Json& terms = step.at("terms");
    const double cross_entropy = terms.at("cross_entropy"), z = terms.at("z_loss"), loss = step.at("loss");
    CHECK(z > 1);
    CHECK(loss == Approx(cross_entropy + 0.01 * z).epsilon(1e-9));
  }
  // The first loss is that of a run without.
  CHECK(double(metrics(scratch / "run")[0].at("terms").at("cross_entropy")) == column(scratch / "plain", "loss")[0]);
  CHECK(has(run.err + run.out, " cross_entropy="));
  const Json e = Json::parse(good(scratch, {"eval", "run", "--json"}).out);
  const double cross_entropy = e.at("terms").at("cross_entropy");
  CHECK(double(e.at("perplexity")) == Approx(std::exp(cross_entropy)).epsilon(1e-12));
  CHECK(double(e.at("loss")) == Approx(cross_entropy + 0.01 * double(e.at("terms").at("z_loss"))).epsilon(1e-9));
}

TEST_CASE("model.z_loss of older configurations and runs still works", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "run", "train.steps=4", "loss.z_loss=0.01"});
  good(scratch, {"run", "config.toml", "--out", "old", "train.steps=4", "model.z_loss=0.01"});
  CHECK(column(scratch / "old", "loss") == column(scratch / "run", "loss"));
  // The text of a run that an older engine wrote.
  const fs::path file = scratch / "old" / "config.resolved.toml";
  std::string text = read(file);
  const size_t loss = text.find("[loss]\n");
  REQUIRE(loss != std::string::npos);
  text.erase(loss, text.find("\n[", loss) + 1 - loss);
  text.replace(text.find("[model]\n"), 8, "[model]\nz_loss = 0.01\n");
  scratch.write("old/config.resolved.toml", text);
  const Result more = good(scratch, {"run", "old", "train.steps=6"});
  CHECK_FALSE(has(more.err, "z_loss ="));
  good(scratch, {"run", "run", "train.steps=6"});
  CHECK(column(scratch / "old", "loss") == column(scratch / "run", "loss"));
  const Result other = good(scratch, {"run", "old", "train.steps=7", "loss.z_loss=0.02"});
  CHECK(has(other.err, "from now on, loss.z_loss = 0.02 (0.01 before)"));
}

TEST_CASE("a run that starts from another run's weights tells that it has a loss of its own", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "base", "train.steps=2", "loss.z_loss=0.01"});
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=2"});
  const std::string told = "base was trained with the loss z_loss = 0.01; a new run has its own, which [loss] chooses";
  const auto from = [&](const std::string& run) {
    return good(scratch, {"run", "config.toml", "--out", "from-" + run, "train.steps=2", "--unset", "model.preset",
                          "model.from='" + run + "'"});
  };
  CHECK(has(from("base").err, told));
  const Result without = from("plain");
  CHECK_FALSE(has(without.err, "was trained with the loss"));
}

TEST_CASE("observers write what they see and change nothing", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=4"});
  const std::string more =
      "\n[[observers]]\nplugin = \"stats\"\nevery = 2\nprogress = [\"gradient_norm.layers.*\"]\n"
      "[[observers]]\nplugin = \"stats\"\nname = \"sizes\"\ngradients = false\nactivations = false\nupdates = false\n"
      "parameters = true\nmaxima = false\n";
  scratch.write("watched.toml", read(scratch / "config.toml") + more);
  const Result run = good(scratch, {"run", "watched.toml", "--out", "run", "train.steps=4"});
  for (const char* key : {"loss", "grad_norm"}) CHECK(column(scratch / "run", key) == column(scratch / "plain", key));
  const std::vector<Json> steps = metrics(scratch / "run");
  REQUIRE(steps.size() == 4);
  for (size_t k = 0; k < 4; ++k) {
    const Json& seen = steps[k].at("observed");
    CHECK(seen.contains("sizes.parameter_norm.layers.0"));
    CHECK_FALSE(seen.contains("sizes.parameter_max.layers.0"));
    CHECK(seen.contains("stats.gradient_norm.layers.0") == (k % 2 == 1));
    double sum = 0;
    for (const auto& [name, value] : seen.items())
      if (name.starts_with("stats.gradient_norm.")) sum += double(value) * double(value);
    if (k % 2) CHECK(std::sqrt(sum) == Approx(double(steps[k].at("grad_norm"))).epsilon(1e-5));
  }
  CHECK(has(run.err + run.out, " stats.gradient_norm.layers.0="));
  CHECK_FALSE(has(run.err + run.out, "sizes."));
  // A run goes on with what its directory says, and other observers are no reason to refuse.
  good(scratch, {"run", "run", "train.steps=6"});
  CHECK(metrics(scratch / "run")[5].at("observed").contains("stats.gradient_norm.layers.0"));
  const Result two = engine(scratch, {"run", "watched.toml", "--ranks", "2", "--out", "two", "train.steps=2",
                                      "zero.plugin=zero3", "device.threads=1"});
  INFO(two.err);
  CHECK(two.exit == 0);
  CHECK(metrics(scratch / "two")[1].at("observed").contains("stats.update_max.layers.0"));
  CHECK(has(good(scratch, {"plan", "watched.toml"}).out, "in observers"));
  CHECK(has(good(scratch, {"config", "schema", "observers"}).out, "with plugin = \"stats\""));
}

TEST_CASE("what an observer asks for between steps every rank does", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("watched.toml",
                read(scratch / "config.toml") + "\n[[observers]]\nplugin = \"stopper\"\nat_most = 1e9\ntell = 1\n");
  for (const char* ranks : {"1", "2"}) {
    const std::string out = std::string("run") + ranks;
    const Result run = good(scratch, {"--plugin-path", FIXTURE_STOPPER, "run", "watched.toml", "--ranks", ranks,
                                      "--out", out, "device.threads=1"});
    CHECK(has(run.err, "\nobserver stopper: low enough\ndone  "));
    CHECK(metrics(scratch / out).size() == 1);
    CHECK(Json::parse(read(scratch / out / "state.json")).at("last_checkpoint") == "step-00000001");
  }
}

TEST_CASE("ranks that hold parts of the weights bring them together for a text", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("written.toml",
                read(scratch / "config.toml") + "\n[[observers]]\nplugin = \"writer\"\nsample_length = 24\nat = 2\n");
  std::set<std::string> lines;
  for (const std::string strategy : {"none", "zero3"}) {
    good(scratch, {"--plugin-path", FIXTURE_WRITER, "run", "written.toml", "--ranks", "2", "--out", strategy,
                   "device.threads=1", "train.steps=3", "zero.plugin=" + strategy});
    const std::string log = read(scratch / strategy / "logs" / "rank-00000.log");
    const size_t at = log.find("step 2: observer writer: ");
    REQUIRE(at != log.npos);
    lines.insert(log.substr(at, log.find('\n', at) - at));
    CHECK(metrics(scratch / strategy).size() == 3);
  }
  CHECK(lines.size() == 1);
  good(scratch, {"--plugin-path", FIXTURE_WRITER, "run", "written.toml", "--ranks", "2", "--out", "stages",
                 "device.threads=1", "train.steps=3", "parallel.pipeline=2"});
  CHECK(read(scratch / "stages" / "logs" / "rank-00000.log").find("step 2: observer writer: ") != std::string::npos);
}

TEST_CASE("without observers the program has nothing of them", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml"), stats = config + "\n[[observers]]\nplugin = \"stats\"\n";
  scratch.write("off.toml", stats + "gradients = false\nactivations = false\nupdates = false\n");
  scratch.write("on.toml", stats);
  // Every action with its buffers, waits and addresses.
  const auto program = [&](const char* file, const char* ranks) {
    return good(scratch, {"plan", file, "--dump", "--ranks", ranks}).out;
  };
  for (const char* ranks : {"1", "2"}) {
    CHECK_FALSE(has(program("config.toml", ranks), "eng.stats."));
    CHECK(has(program("on.toml", ranks), "eng.stats.measure/1"));
  }
  // One that looks at nothing adds nothing. (On several ranks the losses are gathered after the update then.)
  CHECK(program("off.toml", "1") == program("config.toml", "1"));
}

TEST_CASE("mistakes in [[observers]] are told with their place", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  const auto refused = [&](const std::string& text, const char* said) {
    scratch.write("wrong.toml", config + "\n[[observers]]\n" + text);
    const Result result = engine(scratch, {"check", "wrong.toml"});
    INFO(result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, said));
  };
  refused("every = 2\n", "[[observers]] 1: it needs `plugin`");
  refused("plugin = \"stat\"\n", "no observer plugin named `stat`");
  refused("plugin = \"stats\"\ngradient = true\n", "[[observers]] 1: `gradient` is unknown");
  refused("plugin = \"stats\"\nevery = 0\n", "`every` must be at least 1");
  refused("plugin = \"stats\"\nmaxima = 1\n", "`maxima` must be of type bool");
  refused("plugin = \"stats\"\n[[observers]]\nplugin = \"stats\"\n", "two are called stats");
}
