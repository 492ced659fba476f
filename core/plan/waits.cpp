// SPDX-License-Identifier: Apache-2.0
#include "core/plan/waits.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/base/range.hpp"

namespace eng {

void Order::completed(const Segment& segment, uint32_t a, Clock& clock) const {
  for (size_t q = 0; q < queue_count; ++q) clock[q] = std::max(clock[q], before[a][q]);
  uint32_t& own = clock[static_cast<size_t>(segment.actions[a].queue)];
  own = std::max(own, position[a] + 1);
}

void Order::add(const Segment& segment, uint32_t a) {
  const size_t queue = static_cast<size_t>(segment.actions[a].queue);
  Clock clock = last[queue];
  for (uint32_t w : segment.actions[a].waits)
    if (w < a) completed(segment, w, clock);
  before.push_back(clock);
  position.push_back(end[queue]++);
  last[queue] = clock;
  last[queue][queue] = end[queue];
}

Order order_of(const Segment& segment, const Clock& start) {
  Order order(start);
  for (uint32_t a = 0; a < segment.actions.size(); ++a) order.add(segment, a);
  return order;
}

std::vector<uint32_t> enqueue_order(const Segment& segment) {
  std::vector<uint32_t> after, out(segment.actions.size());  // `after`: the end of what must come before, in the list
  std::array<uint32_t, queue_count> last{};                  // of each queue
  for (const Action& action : segment.actions) {
    const Queue q = action.queue;
    uint32_t& mine = last[static_cast<size_t>(q)];
    if (q != Queue::compute && q != Queue::h2d && q != Queue::d2h) mine = static_cast<uint32_t>(after.size() + 1);
    for (uint32_t w : action.waits)
      if (w < after.size()) mine = std::max(mine, after[w]);
    after.push_back(mine);
  }
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(), [&](uint32_t a, uint32_t b) { return after[a] < after[b]; });
  return out;
}

namespace {

constexpr uint32_t no_action = UINT32_MAX;

struct Access {
  uint32_t writer = no_action;
  std::array<uint32_t, queue_count> readers;  // last reader per queue since the last write
  Access() { readers.fill(no_action); }
};

void place_waits(const Plan& plan, Segment& segment) {
  std::unordered_map<Id, RangeMap<Access>> memory;
  auto range = [&](const View& v, auto visit) {
    if (!v.buffer) return;
    auto it = memory.try_emplace(v.buffer, plan.buffer(v.buffer).bytes).first;
    it->second.visit(v.offset, v.offset + bytes(v.desc), visit);
  };
  Order order;
  std::vector<uint32_t> needs;
  for (uint32_t a = 0; a < segment.actions.size(); ++a) {
    Action& action = segment.actions[a];
    needs = action.after;
    const auto need = [&](uint32_t other) {
      if (other != no_action) needs.push_back(other);
    };
    auto write_needs = [&](Access& x) {
      need(x.writer);
      for (uint32_t reader : x.readers) need(reader);
    };
    for (const View& v : action.in) range(v, [&](Access& x) { need(x.writer); });
    for (const View& v : action.out) range(v, write_needs);
    range(action.workspace, write_needs);
    // Newest first: waiting for it implies most of the others.
    std::sort(needs.begin(), needs.end(), std::greater<>());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    action.waits.clear();
    Clock clock = order.reached(action.queue);
    for (uint32_t w : needs) {
      if (clock[static_cast<size_t>(segment.actions[w].queue)] > order.position[w]) continue;
      action.waits.push_back(w);
      order.completed(segment, w, clock);
    }
    order.add(segment, a);
    auto write = [&](Access& x) { x = Access(), x.writer = a; };
    for (const View& v : action.in) range(v, [&](Access& x) { x.readers[static_cast<size_t>(action.queue)] = a; });
    for (const View& v : action.out) range(v, write);
    range(action.workspace, write);
  }
}

}  // namespace

void place_waits(Plan& plan) {
  for (Program& program : plan.programs)
    for (Segment& segment : program.segments) place_waits(plan, segment);
}

}  // namespace eng
