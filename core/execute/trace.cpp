// SPDX-License-Identifier: Apache-2.0
#include "core/execute/trace.hpp"

#include <algorithm>

namespace eng {

std::vector<Trace::Event> Trace::events() const {
  std::vector<Event> out(all_.begin(), all_.begin() + static_cast<int64_t>(std::min(next_.load(), all_.size())));
  std::stable_sort(out.begin(), out.end(), [](const Event& a, const Event& b) { return a.end < b.end; });
  return out;
}

size_t actions_of(const Program& program) {
  size_t n = 0;
  for (const Segment& segment : program.segments) n += segment.repeat * segment.actions.size();
  return n;
}

}  // namespace eng
