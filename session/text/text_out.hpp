// SPDX-License-Identifier: Apache-2.0
// Output of generated text: whole characters as they arrive, and nothing after the start of a stop text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/text/text_stream.hpp"

namespace eng {

class TextOut {
 public:
  explicit TextOut(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // Adds bytes and returns the text that can be shown now. A possible start of a stop text is held back.
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
  // The text that was held back, at the end.
  const std::string& rest() const { return waiting_; }

 private:
  std::vector<std::string> stops_;  // none is empty
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace eng
