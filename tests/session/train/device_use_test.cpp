// SPDX-License-Identifier: Apache-2.0
// Gauges of a device, from a plugin in C to the lines of a run.
#include "session/train/device_use.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "session/json.hpp"
#include "session/plugins/search.hpp"
#include "session/report/progress.hpp"
#include "session/run/run_dir.hpp"

namespace device_use_test {

using namespace eng;

namespace {

Registry& gauges() {
  static const auto all = find_plugins({{FIXTURE_MONITOR}, false});
  return *all;
}

std::optional<DeviceUse> told(const char* name) {
  return DeviceMonitor(gauges(), name, 0).read();
}

}  // namespace

TEST_CASE("gauges: what a device tells, at most once a second", "[gauges]") {
  {
    DeviceMonitor monitor(gauges(), "whole", 2);
    const auto use = monitor.read();
    REQUIRE(use);
    CHECK(use->used_bytes == 43000000001u);
    CHECK(use->utilisation == 0.96);
    CHECK(use->celsius == 78);
    CHECK(use->watts == 3);  // of the third device
    CHECK_FALSE(monitor.read());
    std::this_thread::sleep_for(std::chrono::milliseconds(1010));
    CHECK(monitor.read().value().used_bytes == 43000000002u);  // asked twice, not three times
    DeviceMonitor moved = std::move(monitor);
    CHECK_FALSE(moved.read());
  }
  CHECK(told("whole")->watts == 1);  // the other one was closed
}

TEST_CASE("gauges: what is unknown, odd or an error is left out", "[gauges]") {
  const auto part = told("part");
  REQUIRE(part);
  CHECK((part->celsius == 41 && !part->used_bytes && !part->utilisation && !part->watts));
  for (const char* name : {"mute", "odd", "fails", "absent", "nobody"}) {
    INFO(name);
    CHECK_FALSE(told(name));
  }
  CHECK_FALSE(DeviceMonitor().read());
}

TEST_CASE("gauges: in metrics and on the progress line", "[gauges]") {
  Metrics m;
  m.step = 3, m.step_seconds = 1;
  CHECK(metrics_line(m, 1).find("\"device\"") == std::string::npos);
  CHECK(step_text(m, 9, 1).find("gpu:") == std::string::npos);
  m.device = DeviceUse{uint64_t{43} << 30, 0.96, 78, 352.5};
  CHECK(Json::parse(metrics_line(m, 1)).at("device") ==
        Json::parse(R"({"used_bytes": 46170898432, "utilisation": 0.96, "celsius": 78.0, "watts": 352.5})"));
  const std::string line = step_text(m, 9, 1);
  CHECK(line.find(" gpu: 96% 78C 352W 43.0GiB wait: ") != std::string::npos);
  // If the line is too long, it is the first part to go, and goes whole.
  CHECK(live_text(line, 3, 9, line.size(), false) == line);
  const std::string narrow = live_text(line, 3, 9, line.size() - 1, false);
  CHECK(narrow.find("gpu:") == std::string::npos);
  CHECK(narrow.ends_with(" wait: 0% left: 1.0s"));
  m.device = DeviceUse{{}, {}, 41, {}};
  CHECK(Json::parse(metrics_line(m, 1)).at("device") == Json::parse(R"({"celsius": 41.0})"));
  CHECK(step_text(m, 9, 1).find(" gpu: 41C wait: ") != std::string::npos);
}

}  // namespace device_use_test
