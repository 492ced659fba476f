// SPDX-License-Identifier: Apache-2.0
#include "waits.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/plan/waits.hpp"

namespace devices {
namespace {

struct Bytes {
  uint32_t arena;
  uint64_t begin, end;
};

}  // namespace

eng::Segment& segment(eng::Plan& plan, size_t s) {
  for (eng::Program& program : plan.programs)
    if (program.name == "train") return program.segments[s];
  throw std::logic_error("no program train");
}

std::vector<uint32_t> left_open(const eng::Plan& plan, const eng::Segment& full, const eng::Segment& without) {
  const eng::Order before = eng::order_of(full), after = eng::order_of(without);
  const auto ordered = [&](const eng::Order& order, uint32_t x, uint32_t y) {
    return order.before[y][static_cast<size_t>(full.actions[x].queue)] > order.position[x];
  };
  const auto bytes_of = [&](const eng::View& v) {
    const eng::Buffer& b = plan.buffer(v.buffer);
    return Bytes{b.arena, b.offset + v.offset, b.offset + v.offset + eng::bytes(v.desc)};
  };
  const auto writes = [&](const eng::Action& action) {
    std::vector<Bytes> out;
    if (action.workspace.buffer) out.push_back(bytes_of(action.workspace));
    for (const eng::View& v : action.out) {
      const Bytes all = bytes_of(v);
      const bool collective = plan.calls[action.call].op->collective;
      const Bytes in = collective ? bytes_of(action.in[0]) : Bytes{UINT32_MAX, 0, 0};
      if (in.arena != all.arena || in.begin >= all.end || all.begin >= in.end) {
        out.push_back(all);
        continue;
      }
      if (all.begin < in.begin) out.push_back({all.arena, all.begin, in.begin});
      if (in.end < all.end) out.push_back({all.arena, in.end, all.end});
    }
    return out;
  };
  const auto uses = [&](const eng::Action& action) {
    std::vector<Bytes> out = writes(action);
    for (const eng::View& v : action.in)
      if (v.buffer) out.push_back(bytes_of(v));
    return out;
  };
  const auto share = [](const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
    for (const Bytes& x : a)
      for (const Bytes& y : b)
        if (x.arena == y.arena && x.begin < y.end && y.begin < x.end) return true;
    return false;
  };
  std::vector<uint32_t> out;
  for (uint32_t y = 0; y < full.actions.size(); ++y)
    for (uint32_t x = 0; x < y; ++x) {
      const eng::Action &one = full.actions[x], &other = full.actions[y];
      if (one.queue != other.queue && ordered(before, x, y) && !ordered(after, x, y) &&
          !std::count(out.begin(), out.end(), x) &&
          (share(writes(one), uses(other)) || share(uses(one), writes(other))))
        out.push_back(x);
    }
  return out;
}

eng::Plan without_wait(const eng::Plan& plan, size_t s, size_t action, size_t w) {
  eng::Plan out = plan;
  auto& waits = segment(out, s).actions[action].waits;
  waits.erase(waits.begin() + static_cast<int64_t>(w));
  return out;
}

}  // namespace devices
