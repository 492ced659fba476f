// SPDX-License-Identifier: Apache-2.0
// A run of the engine on a device with discrete memory: the progress line and the metrics tell that memory.
#include <fstream>

#include "session/report/progress.hpp"
#include "tests/cli/harness.hpp"

TEST_CASE("a device with discrete memory: the progress line shows it, and the host's beside it") {
  using namespace cli;
  using cli::Result;
  Scratch scratch;
  scratch.config();
  const std::string plugins = std::string("device.plugins=[\"") + ENGINE_PLUGIN_DIR + "/cpu/reference.eng.so\"]";
  const auto words = [&](Args first, Args last) {
    first.insert(first.begin(), {"--plugin-path", fs::path(FAR).parent_path().string()});
    first.insert(first.end(), {"train.steps=2", "train.eval_every=0", "checkpoint.every=0", "device.plugin=far",
                               plugins, "--unset", "device.threads"});
    first.insert(first.end(), last.begin(), last.end());
    return first;
  };
  const cli::Result planned = engine(scratch, words({"plan", "config.toml"}, {"--json"}));
  INFO(planned.err);
  REQUIRE(planned.exit == 0);
  const Json rank = Json::parse(planned.out).at("ranks").at(0);
  const uint64_t device = rank.at("device_peak_bytes");
  CHECK(device > rank.at("arenas").at(0).at("total").get<uint64_t>());  // the device's own overhead is a part of it
  const cli::Result run = engine(scratch, words({"run", "config.toml"}, {"--out", "run"}));
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(column(scratch / "run", "device_peak_bytes") == std::vector<double>(2, double(device)));
  const uint64_t host = static_cast<uint64_t>(column(scratch / "run", "host_peak_bytes").back());
  CHECK_THAT(run.err,
             Catch::Contains(" mem: " + eng::size_text(device) + " host: " + eng::size_text(host) + " wait: "));
}
