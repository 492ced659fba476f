// SPDX-License-Identifier: Apache-2.0
// Generated text on its way out: whole characters as they come, and nothing from a stop text on.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/text_stream.hpp"

namespace eng {

class TextOut {
 public:
  explicit TextOut(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // Takes more bytes and returns what can be shown now. What may be the beginning of a stop text waits.
  std::string add(std::string_view bytes) {
    waiting_ += bytes;
    size_t end = std::string::npos, held = 0;
    for (const std::string& stop : stops_) {
      end = std::min(end, waiting_.find(stop));
      for (size_t n = std::min(stop.size() - 1, waiting_.size()); n > held; --n)
        if (waiting_.compare(waiting_.size() - n, n, stop, 0, n) == 0) held = n;
    }
    stopped_ = end != std::string::npos;
    if (stopped_) waiting_.erase(end);
    const size_t shown =
        stopped_ ? waiting_.size() : complete(std::string_view(waiting_).substr(0, waiting_.size() - held));
    std::string out = waiting_.substr(0, shown);
    waiting_.erase(0, shown);
    return out;
  }
  bool stopped() const { return stopped_; }
  // What waited for more, which does not come.
  const std::string& rest() const { return waiting_; }

 private:
  std::vector<std::string> stops_;  // none is empty
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace eng
