// SPDX-License-Identifier: Apache-2.0
#include "packing.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace text_data {

void Packing::add(uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end; at += length_) {
    const uint64_t n = std::min(length_, end - at);
    const bool more = at + n < end;
    if (n == 1 && !more) break;  // it has no label, and was the label of the part before it
    tokens_ += n;
    waiting_.emplace_back(at, n, more);
    if (waiting_.size() == window) fit();
  }
}

void Packing::finish() {
  fit();
  if (!documents_.empty()) first_.push_back(documents_.size());
  documents_.shrink_to_fit();
  first_.shrink_to_fit();
  waiting_ = {};
}

// Best fit, the longest first: each goes where it leaves the least room.
void Packing::fit() {
  std::vector<uint32_t> order(waiting_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return waiting_[a].length() > waiting_[b].length(); });
  std::vector<std::vector<uint32_t>> samples;
  std::set<std::pair<uint64_t, uint32_t>> open;  // room, sample
  for (const uint32_t part : order) {
    const uint64_t n = waiting_[part].length();
    auto to = open.lower_bound({n, 0});
    if (to == open.end()) {
      to = open.emplace(length_, static_cast<uint32_t>(samples.size())).first;
      samples.emplace_back();
    }
    const auto [room, sample] = *to;
    open.erase(to);
    if (room > n && !alone_) open.emplace(room - n, sample);
    samples[sample].push_back(part);
  }
  for (std::vector<uint32_t>& sample : samples) {
    std::sort(sample.begin(), sample.end());  // in the order of the data
    first_.push_back(documents_.size());
    for (const uint32_t part : sample) documents_.push_back(waiting_[part]);
  }
  waiting_.clear();
}

}  // namespace text_data
