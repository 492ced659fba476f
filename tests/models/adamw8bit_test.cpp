// SPDX-License-Identifier: Apache-2.0
// Training with moments of 8 bits follows training with f32 moments, and the comparison sees faults.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "course.hpp"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"
#include "tests/paths.hpp"

namespace adamw8bit_test {
namespace {

// With the file of the optimizer adamw8bit, which may be one with a fault.
std::unique_ptr<eng::Registry> registry(const std::string& adamw8bit = {}) {
  eng::PluginSearch search;
  for (const char* file : {"cpu/cpu", "llama/llama", "optim/optim", "precision/precision", "zero/zero"})
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
  search.extra.push_back(adamw8bit.empty() ? std::string(ENGINE_PLUGIN_DIR) + "/optim/adamw8bit.eng.so" : adamw8bit);
  search.environment = false;
  return eng::find_plugins(search);
}

// `forget`: the moments are set back to zero before every step.
double trained(const std::string& optimizer, const std::string& file, bool forget) {
  return models::end_of(*registry(file), {optimizer, "llama", "fp32", forget, 0});
}

// Trains in a process of its own: a process loads one plugin of an id.
double apart(const std::string& optimizer, const std::string& file = {}, bool forget = false) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    double loss = 0;
    try {
      loss = trained(optimizer, file, forget);
    } catch (const std::exception& e) {
      fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
    _exit(write(ends[1], &loss, sizeof loss) != sizeof loss);
  }
  close(ends[1]);
  double loss = NAN;
  const auto got = read(ends[0], &loss, sizeof loss);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(got == sizeof loss);
  return loss;
}

}  // namespace

TEST_CASE("200 steps with 8-bit moments follow those with f32 moments; faults are seen", "[.slow]") {
  const std::string ours = "plugin = 'adamw8bit'\nmin_8bit_size = 0\n";
  const double adamw = apart("plugin = 'adamw'\n"), eight = apart(ours),
               all = apart(ours + "groups = [{match = ['*'], moments = '8bit'}]\n"), forgets = apart(ours, {}, true),
               down = apart(ours, ADAMW8BIT_DOWN);
  INFO("adamw " << adamw << ", adamw8bit " << eight << ", with embeddings " << all << ", moments never updated "
                << forgets << ", always rounded down " << down);
  CHECK(adamw < 2.5);  // it has learned: log(96) = 4.56
  CHECK(std::abs(eight - adamw) < 0.02);
  CHECK(eight != adamw);
  CHECK(std::abs(all - adamw) < 0.02);
  CHECK(std::abs(forgets - adamw) > 0.02);
  CHECK(std::abs(down - adamw) > 0.02);
}

TEST_CASE("adamw8bit refuses settings that it cannot use, and says which") {
  const auto plugins = registry();
  const auto refused = [&](const std::string& line) -> std::string {
    try {
      models::course::config(*plugins, {"plugin = 'adamw8bit'\n" + line + "\n"});
    } catch (const eng::Error& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(refused("min_8bit_size = 0") == "accepted");
  CHECK_THAT(refused("min_8bit_size = -1"), Catch::Contains("min_8bit_size") && Catch::Contains("at least 0"));
  CHECK_THAT(refused("min_8bit_size = 'all'"), Catch::Contains("min_8bit_size"));
  CHECK_THAT(refused("min_8bit_size = 1e3"), Catch::Contains("min_8bit_size"));
  CHECK_THAT(refused("min_8bits_size = 1"), Catch::Contains("unknown key `min_8bits_size`"));
  CHECK_THAT(refused("moments = '4bit'"), Catch::Contains("`moments` must be one of its choices"));
  CHECK_THAT(refused("beta2 = 1.0"), Catch::Contains("beta2"));
  CHECK_THAT(refused("eps = nan"), Catch::Contains("eps"));
  CHECK_THAT(refused("groups = [{match = ['*'], min_8bit_size = 1}]"), Catch::Contains("min_8bit_size"));
}

}  // namespace adamw8bit_test
