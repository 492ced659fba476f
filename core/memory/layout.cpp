// SPDX-License-Identifier: Apache-2.0
#include "core/memory/layout.hpp"

#include <algorithm>

#include "core/plan/waits.hpp"

namespace eng {
namespace {

uint64_t round_up(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

// When a buffer is in use: what is complete before its earliest use, and which uses must be complete after.
struct Lifetime {
  Clock earliest;  // per queue: the least that is complete before any use
  Clock release;   // per queue: one past its last use there
  bool used = false;
};

bool ends_before(const Lifetime& a, const Lifetime& b) {
  for (size_t q = 0; q < queue_count; ++q)
    if (a.release[q] > b.earliest[q]) return false;
  return true;
}

struct Placed {
  uint64_t begin, end;
  const Lifetime* life;
};

class SegmentLayout {
 public:
  SegmentLayout(Plan& plan, const Segment& segment) : plan_(plan), lives_(plan.buffers.size()) {
    Order order = order_of(segment);
    for (size_t a = 0; a < segment.actions.size(); ++a) {
      const Action& action = segment.actions[a];
      auto use = [&](const View& v) {
        if (!v.buffer || plan.buffer(v.buffer).persistent) return;
        Lifetime& life = lives_[v.buffer - 1];
        if (!life.used) {
          life.used = true;
          life.earliest = order.before[a];
          life.release = {};
          ids_.push_back(v.buffer);
        }
        for (size_t q = 0; q < queue_count; ++q) life.earliest[q] = std::min(life.earliest[q], order.before[a][q]);
        size_t queue = static_cast<size_t>(action.queue);
        life.release[queue] = std::max(life.release[queue], order.position[a] + 1);
      };
      for (const View& v : action.in) use(v);
      for (const View& v : action.out) use(v);
      use(action.workspace);
    }
  }

  // Best fit, largest first. Returns the top reached by this kind of buffer.
  uint64_t place(bool workspace) {
    std::vector<Id> order;
    for (Id id : ids_)
      if ((plan_.buffer(id).line == Line::workspace) == workspace) order.push_back(id);
    std::stable_sort(order.begin(), order.end(),
                     [&](Id a, Id b) { return plan_.buffer(a).bytes > plan_.buffer(b).bytes; });
    uint64_t top = 0;
    std::vector<Placed> conflicts;
    for (Id id : order) {
      const Lifetime& life = lives_[id - 1];
      uint64_t size = std::max(round_up(plan_.buffer(id).bytes, alignment), alignment);
      conflicts.clear();
      for (const Placed& p : placed_)
        if (!ends_before(*p.life, life) && !ends_before(life, *p.life)) conflicts.push_back(p);
      std::sort(conflicts.begin(), conflicts.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
      uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
      for (const Placed& p : conflicts) {
        if (p.begin >= at && p.begin - at >= size && p.begin - at < best_gap) best = at, best_gap = p.begin - at;
        at = std::max(at, p.end);
      }
      if (best == UINT64_MAX) best = at;
      plan_.buffer(id).offset = best;
      placed_.push_back({best, best + size, &life});
      top = std::max(top, best + size);
    }
    return top;
  }

  void shift(uint64_t base) {
    for (Id id : ids_) plan_.buffer(id).offset += base;
  }

 private:
  Plan& plan_;
  std::vector<Lifetime> lives_;
  std::vector<Id> ids_;
  std::vector<Placed> placed_;
};

}  // namespace

void place_buffers(Plan& plan) {
  for (Arena& arena : plan.arenas) arena.persistent = arena.transient = arena.workspace = 0;
  for (Buffer& buffer : plan.buffers)
    if (buffer.persistent) {
      Arena& arena = plan.arenas[buffer.arena];
      buffer.offset = arena.persistent;
      arena.persistent += round_up(std::max<uint64_t>(buffer.bytes, 1), 4096);
    }
  Arena& arena = plan.arenas[0];
  uint64_t values = 0, top = 0;
  for (Program& program : plan.programs)
    for (Segment& segment : program.segments) {
      SegmentLayout layout(plan, segment);
      uint64_t own = layout.place(false);
      values = std::max(values, own);
      top = std::max({top, own, layout.place(true)});
      layout.shift(arena.persistent);
    }
  arena.transient = values;
  arena.workspace = top - values;
}

}  // namespace eng
