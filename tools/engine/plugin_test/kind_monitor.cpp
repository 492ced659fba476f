// SPDX-License-Identifier: Apache-2.0
// eng.monitor/1: numbers that can be, or unknown; nothing beyond its struct.
#include <algorithm>
#include <cstring>

#include "engine/monitor.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

class OpenMonitor {
 public:
  // Without the device, or without its driver, there is nothing to read.
  explicit OpenMonitor(const eng_monitor& table) : table_(table) {
    Sink sink;
    const eng_status status = table.open(0, &self_, sink.get());
    if (status == ENG_UNAVAILABLE) {
      absent_ = sink.text(status);
      return;
    }
    sink.check(status, Exit::environment, "open");
    made_ = true;
  }
  ~OpenMonitor() {
    if (made_) table_.close(self_);
  }
  OpenMonitor(const OpenMonitor&) = delete;
  OpenMonitor& operator=(const OpenMonitor&) = delete;
  const std::string& absent() const { return absent_; }

  eng_gauges read() const {
    struct {
      eng_gauges told;
      char beyond[64];
    } room;
    std::memset(&room, '\x7f', sizeof room);
    room.told = {sizeof(eng_gauges), 0, 0, -1, -1, -1};
    Sink sink;
    sink.check(table_.read(self_, &room.told, sink.get()), Exit::environment, "read");
    if (std::any_of(std::begin(room.beyond), std::end(room.beyond), [](char c) { return c != '\x7f'; }))
      throw Broken("read wrote beyond its struct");
    return room.told;
  }

 private:
  const eng_monitor& table_;
  void* self_ = nullptr;
  bool made_ = false;
  std::string absent_;
};

void check_gauge(const char* name, double value, double most) {
  if (value == -1 || (value >= 0 && value <= most)) return;
  throw Broken(fmt::format("{} is {:g}; it must be from 0 to {:g}, or -1 if it is unknown", name, value, most));
}

}  // namespace

void test_monitor(const Subject& s, Sheet& sheet) {
  sheet.check("gauges", [&]() -> std::string {
    const auto table = s.table<eng_monitor>();
    const OpenMonitor one(table);
    if (!one.absent().empty()) return "not here: " + one.absent();
    for (int k = 0; k < 20; ++k) {
      const eng_gauges now = one.read();
      check_gauge("utilisation", now.utilisation, 1);
      check_gauge("celsius", now.celsius, 1000);
      check_gauge("watts", now.watts, 1e6);
    }
    return "20 readings";
  });
  sheet.check("two at once", [&]() -> std::string {
    const auto table = s.table<eng_monitor>();
    const OpenMonitor one(table), two(table);
    if (one.absent().empty() != two.absent().empty())
      throw Broken("the second could not be opened: " + one.absent() + two.absent());
    if (!one.absent().empty()) return "not here";
    one.read(), two.read();
    return "";
  });
}

}  // namespace eng::plugin_test
