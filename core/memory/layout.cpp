// SPDX-License-Identifier: Apache-2.0
#include "core/memory/layout.hpp"

#include <numeric>
#include <tuple>

#include "core/plan/waits.hpp"

namespace eng {
namespace {

using Interval = std::pair<uint64_t, uint64_t>;  // begin and end

// A tree over the times [0, n): node k covers what nodes 2k and 2k + 1 do; leaf n + t is time t. Calls `visit` for the
// nodes that make up a span.
template <class F>
void make_up(size_t n, const Interval& span, F visit) {
  for (size_t l = span.first + n, r = span.second + n; l < r; l /= 2, r /= 2) {
    if (l % 2) visit(l++);
    if (r % 2) visit(--r);
  }
}

// The bytes that are taken, by time. Of two spans of time that overlap, one contains the last time of the other.
class Taken {
 public:
  explicit Taken(size_t times) : n_(times), all_(2 * times), last_(2 * times) {}
  void clear() {
    for (auto* nodes : {&all_, &last_})
      for (std::vector<Interval>& spans : *nodes) spans.clear();
  }
  void add(const Interval& time, const Interval& bytes) {
    make_up(n_, time, [&](size_t k) { insert(all_[k], bytes); });
    // If a node has the bytes, its ancestors have them.
    for (size_t k = time.second - 1 + n_; k && insert(last_[k], bytes);) k /= 2;
    for (size_t k = time.first + n_; k && insert(last_[k], bytes);) k /= 2;
  }
  // Appends what is taken at any of these times.
  void find(const Interval& time, std::vector<Interval>& out) const {
    const auto append = [&](const std::vector<Interval>& some) { out.insert(out.end(), some.begin(), some.end()); };
    make_up(n_, time, [&](size_t k) { append(last_[k]); });
    for (size_t k = time.second - 1 + n_; k; k /= 2) append(all_[k]);
  }

 private:
  // Keeps `all` sorted, and joins spans that touch. False if it has the bytes.
  static bool insert(std::vector<Interval>& all, Interval bytes) {
    const auto before = [](const Interval& s, uint64_t begin) { return s.second < begin; };
    const auto from = std::lower_bound(all.begin(), all.end(), bytes.first, before);
    if (from == all.end() || bytes.second < from->first) {
      all.insert(from, bytes);
      return true;
    }
    if (from->first <= bytes.first && bytes.second <= from->second) return false;
    auto to = from;
    for (; to != all.end() && to->first <= bytes.second; ++to)
      bytes = {std::min(bytes.first, to->first), std::max(bytes.second, to->second)};
    *from = bytes;
    all.erase(from + 1, to);
    return true;
  }
  size_t n_;
  // Per node: what is taken at all of its times, and what is taken up to one of them.
  std::vector<std::vector<Interval>> all_, last_;
};

// A transient of one program, and when it is in use.
struct Item {
  Id id = 0;
  uint64_t size = 0, align = 0;
  bool scratch = false;
  Clock earliest{};                 // per queue: the least progress that is certain before its uses
  Clock release{};                  // per queue: the progress at which its last use is complete
  Interval time;                    // from its first action to behind its last one, in list order
  size_t first_part = 0, part = 0;  // the segments of these
  uint64_t peak = 0;                // the most bytes in use at any action of `time`
  // Two items may not share bytes if any of `held` of one overlaps any of `clash` of the other.
  std::vector<Interval> held, clash;
};

struct Items {
  std::vector<std::vector<Item>> arenas;
  size_t times = 0;  // Item::held and Item::clash are below
};

Items items_of(const Plan& plan, const Program& program) {
  Items all{std::vector<std::vector<Item>>(plan.arenas.size())};
  std::vector<size_t> index(plan.buffers.size() + 1, SIZE_MAX);
  std::vector<Clock> border{Clock{}};                    // progress before each segment, and at the end
  std::array<std::vector<size_t>, queue_count> actions;  // each queue's, in list order
  size_t now = 0;
  for (size_t s = 0; s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    const Order order = order_of(segment, border[s]);
    border.push_back(order.end);
    for (size_t a = 0; a < segment.actions.size(); ++a, ++now) {
      const Action& action = segment.actions[a];
      actions[static_cast<size_t>(action.queue)].push_back(now);
      const uint64_t least = plan.calls[action.call].storage ? page : alignment;
      auto use = [&](const View& v) {
        if (!v.buffer || plan.buffer(v.buffer).persistent) return;
        const Buffer& b = plan.buffer(v.buffer);
        std::vector<Item>& items = all.arenas[b.arena];
        if (index[v.buffer] == SIZE_MAX) {
          index[v.buffer] = items.size();
          Item& item = items.emplace_back();
          item.id = v.buffer, item.size = up(std::max<uint64_t>(b.bytes, 1), alignment),
          item.scratch = b.line == Line::workspace;
          item.align = alignment;
          item.earliest = order.before[a];
          item.time.first = now, item.first_part = s;
        }
        Item& item = items[index[v.buffer]];
        item.align = std::max(item.align, least);
        item.time.second = now + 1, item.part = s;
        for (size_t q = 0; q < queue_count; ++q) item.earliest[q] = std::min(item.earliest[q], order.before[a][q]);
        item.release[static_cast<size_t>(action.queue)] = order.position[a] + 1;
      };
      for (const View& v : action.in) use(v);
      for (const View& v : action.out) use(v);
      use(action.workspace);
    }
  }
  all.times = now;
  for (const auto& mine : actions) all.times += mine.empty() || mine.size() == now ? 0 : 2 * now;
  for (std::vector<Item>& items : all.arenas) {
    std::vector<uint64_t> in_use(2 * now + 1, 0);  // a tree; differences first
    for (const Item& i : items) in_use[now + i.time.first] += i.size, in_use[now + i.time.second] -= i.size;
    std::partial_sum(in_use.begin() + ptrdiff_t(now), in_use.end(), in_use.begin() + ptrdiff_t(now));
    for (size_t k = now; k-- > 1;) in_use[k] = std::max(in_use[2 * k], in_use[2 * k + 1]);
    for (Item& item : items) {
      make_up(now, item.time, [&](size_t k) { item.peak = std::max(item.peak, in_use[k]); });
      item.held.push_back(item.time);
      // A value from an earlier segment is needed by every repetition.
      if (item.first_part != item.part && program.segments[item.part].repeat > 1)
        item.release = border[item.part + 1],
        item.held[0].second = std::accumulate(item.release.begin(), item.release.end(), uint64_t{0});
      item.clash = item.held;
      // An item that comes first in list order may still be in use, as far as queues and waits tell, at any action of
      // another queue that may end after the other item's first use.
      for (size_t q = 0, at = now; q < queue_count; ++q) {
        const auto& mine = actions[q];
        if (mine.empty() || mine.size() == now) continue;
        const uint64_t first = item.time.first, done = item.earliest[q], last = item.release[q];
        const uint64_t open = done < mine.size() ? std::min<uint64_t>(mine[done], first) : first;
        const auto add = [&](uint64_t begin, uint64_t end, std::vector<Interval>& here, std::vector<Interval>& other) {
          if (begin < end)
            here.emplace_back(at + begin, at + end), other.emplace_back(at + now + begin, at + now + end);
        };
        add(open, first, item.clash, item.held);
        if (last) add(mine[last - 1], mine[last - 1] + 1, item.held, item.clash);
        at += 2 * now;
      }
    }
  }
  return all;
}

struct Layout {
  std::vector<uint64_t> offsets;  // per item
  uint64_t values = 0, top = 0;   // end of all items without scratch, and of all items
};

// Places items in the given order, each by best fit.
Layout place(const std::vector<Item>& items, const std::vector<size_t>& order, Taken& taken) {
  Layout out{std::vector<uint64_t>(items.size()), 0, 0};
  taken.clear();
  std::vector<Interval> conflicts;
  for (size_t k : order) {
    const Item& item = items[k];
    conflicts.clear();
    for (const Interval& time : item.clash) taken.find(time, conflicts);
    std::sort(conflicts.begin(), conflicts.end());
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (const auto& [begin, end] : conflicts) {
      if (begin >= at + item.size && begin - at < best_gap) best = at, best_gap = begin - at;
      at = std::max(at, up(end, item.align));
    }
    if (best == UINT64_MAX) best = at;
    out.offsets[k] = best;
    for (const Interval& time : item.held) taken.add(time, {best, best + item.size});
    out.top = std::max(out.top, best + item.size);
    if (!item.scratch) out.values = out.top;
  }
  return out;
}

// Per time, and at the end: at how many of the times before it one of these spans of the items holds.
std::vector<size_t> covered(const std::vector<Item>& items, size_t times, std::vector<Interval> Item::*spans) {
  std::vector<size_t> out(times + 1, 0);
  for (const Item& item : items)
    for (const Interval& span : item.*spans) ++out[span.first], --out[span.second];
  std::partial_sum(out.begin(), out.end(), out.begin());
  std::transform(out.begin(), out.end(), out.begin(), [](size_t n) { return size_t{n > 0}; });
  std::exclusive_scan(out.begin(), out.end(), out.begin(), size_t{0});
  return out;
}

// Drops the spans that meet no other, and numbers the times at which one begins or ends. Returns how many there are.
size_t shorten(std::vector<Item>& items, size_t times) {
  const auto held = covered(items, times, &Item::held), clash = covered(items, times, &Item::clash);
  std::vector<size_t> number(times + 1, 0);
  for (Item& item : items) {
    const auto meets = [](const std::vector<size_t>& other) {
      return [&other](const Interval& span) { return other[span.first] == other[span.second]; };
    };
    std::erase_if(item.held, meets(clash));
    std::erase_if(item.clash, meets(held));
    for (const auto* spans : {&item.held, &item.clash})
      for (const Interval& span : *spans) number[span.first] = number[span.second] = 1;
  }
  std::exclusive_scan(number.begin(), number.end(), number.begin(), size_t{0});
  for (Item& item : items)
    for (auto* spans : {&item.held, &item.clash})
      for (Interval& span : *spans) span = {number[span.first], number[span.second]};
  return number.back() + 1;
}

// The most bytes that values, or values and scratch, hold at a time: no layout takes less.
uint64_t least(const std::vector<Item>& items, size_t times, bool scratch) {
  std::vector<uint64_t> held(times + 1, 0);  // differences first
  for (const Item& i : items)
    if (scratch || !i.scratch) held[i.held[0].first] += i.size, held[i.held[0].second] -= i.size;
  std::partial_sum(held.begin(), held.end(), held.begin());
  return *std::max_element(held.begin(), held.end());
}

// The best of three orders: largest items first, or, twice, those in use at the highest peak. Scratch comes last.
Layout place(std::vector<Item>& items, size_t times) {
  times = shorten(items, times);
  const std::pair lowest(least(items, times, true), least(items, times, false));
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  Layout best{{}, UINT64_MAX, UINT64_MAX};
  Taken taken(times);
  auto attempt = [&](auto key) {
    if (std::pair(best.top, best.values) == lowest) return;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(items[a]) < key(items[b]); });
    Layout layout = place(items, order, taken);
    if (std::tie(layout.top, layout.values) < std::tie(best.top, best.values)) best = std::move(layout);
  };
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.size); });
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.peak, ~i.size); });
  attempt([](const Item& i) { return std::tuple(i.scratch, ~i.peak, ~i.time.second, ~i.size); });
  return best;
}

}  // namespace

void place_buffers(Plan& plan) {
  for (Arena& arena : plan.arenas) arena.persistent = arena.transient = arena.workspace = 0;
  for (Buffer& buffer : plan.buffers)
    if (buffer.persistent) {
      Arena& arena = plan.arenas[buffer.arena];
      buffer.offset = arena.persistent;
      arena.persistent += up(std::max<uint64_t>(buffer.bytes, 1), page);
    }
  std::vector<uint64_t> top(plan.arenas.size(), 0);
  for (const Program& program : plan.programs) {
    Items items = items_of(plan, program);
    for (size_t a = 0; a < top.size(); ++a) {
      Arena& arena = plan.arenas[a];
      const Layout layout = place(items.arenas[a], items.times);
      for (size_t k = 0; k < items.arenas[a].size(); ++k)
        plan.buffer(items.arenas[a][k].id).offset = arena.persistent + layout.offsets[k];
      arena.transient = std::max(arena.transient, layout.values);
      top[a] = std::max(top[a], layout.top);
    }
  }
  for (size_t a = 0; a < top.size(); ++a) plan.arenas[a].workspace = top[a] - plan.arenas[a].transient;
}

}  // namespace eng
