// SPDX-License-Identifier: Apache-2.0
#include "core/plan/waits.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/range_map.hpp"

namespace eng {
namespace {

constexpr uint32_t nobody = UINT32_MAX;

struct Access {
  uint32_t writer = nobody;
  std::array<uint32_t, queue_count> readers;  // last reader per queue since the last write
  Access() { readers.fill(nobody); }
};

void join(Clock& a, const Clock& b) {
  for (size_t q = 0; q < queue_count; ++q) a[q] = std::max(a[q], b[q]);
}

void place_waits(const Plan& plan, Segment& segment) {
  std::map<Id, RangeMap<Access>> memory;
  auto range = [&](const View& v, auto visit) {
    if (!v.buffer) return;
    auto it = memory.try_emplace(v.buffer, plan.buffer(v.buffer).bytes).first;
    it->second.visit(v.offset, v.offset + bytes(v.desc), visit);
  };
  std::array<Clock, queue_count> done{};  // per queue: what is complete after its last action
  std::vector<Clock> before(segment.actions.size());
  std::vector<uint32_t> position(segment.actions.size());
  std::array<uint32_t, queue_count> length{};
  for (uint32_t a = 0; a < segment.actions.size(); ++a) {
    Action& action = segment.actions[a];
    size_t queue = static_cast<size_t>(action.queue);
    std::set<uint32_t, std::greater<>> needs;  // newest first: it covers most
    auto written = [&](Access& x) {
      needs.insert(x.writer);
      for (uint32_t r : x.readers) needs.insert(r);
    };
    for (const View& v : action.in) range(v, [&](Access& x) { needs.insert(x.writer); });
    for (const View& v : action.out) range(v, written);
    range(action.workspace, written);
    needs.erase(nobody);
    action.waits.clear();
    Clock clock = done[queue];
    for (uint32_t need : needs) {
      size_t q = static_cast<size_t>(segment.actions[need].queue);
      if (clock[q] > position[need]) continue;
      action.waits.push_back(need);
      join(clock, before[need]);
      clock[q] = std::max(clock[q], position[need] + 1);
    }
    before[a] = clock;
    position[a] = length[queue]++;
    done[queue] = clock;
    done[queue][queue] = length[queue];
    for (const View& v : action.in) range(v, [&](Access& x) { x.readers[queue] = a; });
    auto write = [&](Access& x) {
      x = Access();
      x.writer = a;
    };
    for (const View& v : action.out) range(v, write);
    range(action.workspace, write);
  }
}

}  // namespace

void place_waits(Plan& plan) {
  for (Program& program : plan.programs)
    for (Segment& segment : program.segments) place_waits(plan, segment);
}

Order order_of(const Segment& segment, const Clock& start) {
  Order order{{}, {}, start};
  std::array<Clock, queue_count> done;
  done.fill(start);
  for (const Action& action : segment.actions) {
    size_t queue = static_cast<size_t>(action.queue);
    Clock clock = done[queue];
    for (uint32_t w : action.waits) {
      if (w >= order.before.size()) continue;  // the verifier reports it
      join(clock, order.before[w]);
      size_t q = static_cast<size_t>(segment.actions[w].queue);
      clock[q] = std::max(clock[q], order.position[w] + 1);
    }
    order.before.push_back(clock);
    order.position.push_back(order.end[queue]++);
    done[queue] = clock;
    done[queue][queue] = order.end[queue];
  }
  return order;
}

}  // namespace eng
