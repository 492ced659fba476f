// SPDX-License-Identifier: Apache-2.0
#include "core/memory/layout.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/plan/waits.hpp"

namespace eng {
namespace {

uint64_t round_up(uint64_t n, uint64_t to) {
  return (std::max<uint64_t>(n, 1) + to - 1) / to * to;
}

// A transient of one program, and when it is in use.
struct Item {
  Id id = 0;
  uint32_t arena = 0;
  uint64_t size = 0;
  bool scratch = false;
  Clock earliest{};                      // per queue: the least progress that is certain before its uses
  Clock release{};                       // per queue: the progress at which its last use is complete
  size_t first = 0, last = 0;            // its first and last action, in list order
  size_t first_part = 0, last_part = 0;  // the segments of these
  uint64_t peak = 0;                     // the most bytes in use at any action from first to last
};

bool ends_before(const Item& a, const Item& b) {
  for (size_t q = 0; q < queue_count; ++q)
    if (a.release[q] > b.earliest[q]) return false;
  return true;
}

std::vector<Item> items_of(const Plan& plan, const Program& program) {
  std::vector<Item> items;
  std::vector<size_t> index(plan.buffers.size() + 1, SIZE_MAX);
  std::vector<Clock> border{Clock{}};  // progress before each segment, and at the end
  size_t now = 0;
  for (size_t s = 0; s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    const Order order = order_of(segment, border[s]);
    border.push_back(order.end);
    for (size_t a = 0; a < segment.actions.size(); ++a, ++now) {
      const Action& action = segment.actions[a];
      auto use = [&](const View& v) {
        if (!v.buffer || plan.buffer(v.buffer).persistent) return;
        if (index[v.buffer] == SIZE_MAX) {
          const Buffer& b = plan.buffer(v.buffer);
          index[v.buffer] = items.size();
          Item& item = items.emplace_back();
          item.id = v.buffer, item.arena = b.arena;
          item.size = round_up(b.bytes, alignment), item.scratch = b.line == Line::workspace;
          item.earliest = order.before[a];
          item.first = now, item.first_part = s;
        }
        Item& item = items[index[v.buffer]];
        item.last = now, item.last_part = s;
        for (size_t q = 0; q < queue_count; ++q) item.earliest[q] = std::min(item.earliest[q], order.before[a][q]);
        item.release[static_cast<size_t>(action.queue)] = order.position[a] + 1;
      };
      for (const View& v : action.in) use(v);
      for (const View& v : action.out) use(v);
      use(action.workspace);
    }
  }
  std::vector<std::vector<uint64_t>> in_use(plan.arenas.size(), std::vector<uint64_t>(now, 0));
  for (Item& item : items) {
    for (size_t a = item.first; a <= item.last; ++a) in_use[item.arena][a] += item.size;
    // A value from an earlier segment is needed by every repetition.
    if (item.first_part != item.last_part && program.segments[item.last_part].repeat > 1)
      item.release = border[item.last_part + 1];
  }
  for (Item& item : items)
    for (size_t a = item.first; a <= item.last; ++a) item.peak = std::max(item.peak, in_use[item.arena][a]);
  return items;
}

struct Layout {
  std::vector<uint64_t> offsets;  // per item
  uint64_t values = 0, top = 0;   // end of all items without scratch, and of all items
};

// Places items in the given order, each by best fit.
Layout place(const std::vector<Item>& items, const std::vector<size_t>& order) {
  Layout out{std::vector<uint64_t>(items.size()), 0, 0};
  std::vector<size_t> placed, conflicts;
  for (size_t k : order) {
    const Item& item = items[k];
    conflicts.clear();
    for (size_t p : placed)
      if (!ends_before(items[p], item) && !ends_before(item, items[p])) conflicts.push_back(p);
    std::sort(conflicts.begin(), conflicts.end(), [&](size_t a, size_t b) { return out.offsets[a] < out.offsets[b]; });
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (size_t p : conflicts) {
      const uint64_t begin = out.offsets[p];
      if (begin >= at + item.size && begin - at < best_gap) best = at, best_gap = begin - at;
      at = std::max(at, begin + items[p].size);
    }
    if (best == UINT64_MAX) best = at;
    out.offsets[k] = best;
    placed.push_back(k);
    out.top = std::max(out.top, best + item.size);
    if (!item.scratch) out.values = out.top;
  }
  return out;
}

// The best of three orders: largest items first, or, twice, those in use at the highest peak. Scratch comes last.
Layout place(const std::vector<Item>& items) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  Layout best{{}, UINT64_MAX, UINT64_MAX};
  auto attempt = [&](auto key) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(items[a]) < key(items[b]); });
    Layout layout = place(items, order);
    if (std::tie(layout.top, layout.values) < std::tie(best.top, best.values)) best = std::move(layout);
  };
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.size); });
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.peak, ~i.size); });
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.peak, ~i.last, ~i.size); });
  return best;
}

}  // namespace

void place_buffers(Plan& plan) {
  for (Arena& arena : plan.arenas) arena.persistent = arena.transient = arena.workspace = 0;
  for (Buffer& buffer : plan.buffers)
    if (buffer.persistent) {
      Arena& arena = plan.arenas[buffer.arena];
      buffer.offset = arena.persistent;
      arena.persistent += round_up(buffer.bytes, 4096);
    }
  std::vector<uint64_t> top(plan.arenas.size(), 0);
  for (const Program& program : plan.programs) {
    std::vector<std::vector<Item>> items(plan.arenas.size());
    for (Item& item : items_of(plan, program)) items[item.arena].push_back(item);
    for (size_t a = 0; a < items.size(); ++a) {
      Arena& arena = plan.arenas[a];
      const Layout layout = place(items[a]);
      for (size_t k = 0; k < items[a].size(); ++k)
        plan.buffer(items[a][k].id).offset = arena.persistent + layout.offsets[k];
      arena.transient = std::max(arena.transient, layout.values);
      top[a] = std::max(top[a], layout.top);
    }
  }
  for (size_t a = 0; a < top.size(); ++a) plan.arenas[a].workspace = top[a] - plan.arenas[a].transient;
}

}  // namespace eng
