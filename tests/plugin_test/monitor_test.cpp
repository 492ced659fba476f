// SPDX-License-Identifier: Apache-2.0
// Impossible answers of a monitor.
#include "tried.hpp"

namespace plugin_test {

TEST_CASE("gauges that cannot be are named, with their monitor", "[plugin_test]") {
  const Scratch place;
  const Tried tried = try_plugin(place, FIXTURE_MONITOR);
  INFO(tried.text());
  CHECK(tried.result.exit == 3);
  CHECK(tried.failed("eng.monitor/1 odd, gauges: utilisation is nan; it must be from 0 to 1, or -1"));
  CHECK(tried.failed("eng.monitor/1 fails, gauges: read: not today"));
  for (const char* name : {"whole", "part", "mute", "absent"})
    CHECK_FALSE(tried.failed(std::string("eng.monitor/1 ") + name + ","));
  CHECK(has(tried.result.out, "not here: no driver"));
}

}  // namespace plugin_test
