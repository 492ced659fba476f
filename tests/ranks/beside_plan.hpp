// SPDX-License-Identifier: Apache-2.0
// The memory that runs took beside that of their plans.
#pragma once

#include <algorithm>
#include <cmath>

#include "../cli/harness.hpp"

namespace cli {

class BesidePlan {
 public:
  // Checks the device's memory, which is as planned to the byte. Returns it.
  double add(const fs::path& run) {
    const std::string all = read(run / "metrics.jsonl");
    const Json metrics = Json::parse(all.substr(all.rfind('\n', all.size() - 2) + 1));
    const std::string plan = read(run / "plan.txt");
    const auto planned = [&](const char* line) { return std::atof(plan.substr(plan.find(line) + 14).c_str()); };
    const auto device = metrics.at("device_peak_bytes").get<double>();
    CHECK(device == planned("    total     "));
    limit_ = std::max(planned("  process peak") / 100, 1048576.0);
    off_.push_back(metrics.at("host_peak_bytes").get<double>() - planned("  process peak"));
    return device;
  }
  // The median of the processes is within 1 % or 1 MiB.
  void check() {
    std::sort(off_.begin(), off_.end());
    CAPTURE(off_);
    CHECK(std::abs(off_[off_.size() / 2]) < limit_);
  }

 private:
  std::vector<double> off_;
  double limit_ = 0;
};

}  // namespace cli
