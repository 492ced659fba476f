// SPDX-License-Identifier: Apache-2.0
#include "fleet.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"
#include "engine/ops_parallel.h"

namespace equality {
namespace {

// True for buffers that zero.live_limit is about.
bool counts(const eng::Buffer& b) {
  const auto named = [&](const char* prefix) { return b.name.rfind(prefix, 0) == 0; };
  return b.line == eng::Line::leases || named("fresh gradient ") || named("whole gradient ");
}

constexpr eng_exec exec = {sizeof(eng_exec), 0, nullptr};

void fold_left_to_right(const eng::Call& call, const float* x, float* out) {
  const int64_t rows = call.attrs.i("rows"), n = eng::count(call.out[0]);
  for (int64_t j = 0; j < n; ++j) {
    out[j] = x[j];
    for (int64_t r = 1; r < rows; ++r) out[j] += x[r * n + j];
  }
}

}  // namespace

// Memory is zero at first, or what the tier gives.
void Fleet::make_arenas(Rank& rank, uint32_t number, eng::Registry* tiers) {
  const eng::Plan& plan = *rank.plan;
  for (uint32_t a = 0; a < plan.arenas.size(); ++a) {
    Arena& arena = rank.arenas.emplace_back();
    arena.bytes = plan.arenas[a].total();
    if (tiers && a >= plan.first_tier) {
      arena.storage = plan.stores(a);
      const eng::Offload::Tier which{plan.arenas[a].device, arena.storage};
      arena.tier = std::make_unique<eng::Tier>(*tiers, which, eng::Section(), number);
      arena.handle = arena.tier->alloc(arena.bytes);
      if (!arena.storage) arena.memory = static_cast<uint8_t*>(arena.handle);
    }
    if (arena.memory) continue;
    const uint64_t size = (arena.bytes + 4096) / 4096 * 4096;
    arena.memory = static_cast<uint8_t*>(std::aligned_alloc(4096, size));
    std::memset(arena.memory, 0, size);
  }
}

Fleet::Fleet(const std::vector<eng::Plan>& plans, const eng::Kernels& kernels, const Fault& fault, eng::Registry* tiers)
    : kernels_(kernels), fault_(fault), ranks_(plans.size()) {
  for (size_t r = 0; r < plans.size(); ++r) {
    Rank& rank = ranks_[r];
    const eng::Plan& plan = *(rank.plan = &plans[r]);
    make_arenas(rank, static_cast<uint32_t>(r), tiers);
    for (const eng::Call& call : plan.calls) {
      rank.states.push_back(nullptr);
      if (call.op->collective) continue;
      const eng::CallArgs args(call, kernels.info().parallel);
      eng::Sink sink;
      // The reference kernels compute in host memory and ask nothing of a device.
      sink.check(kernels.find(call).prepare(nullptr, args.get(), &rank.states.back(), sink.get()),
                 eng::Exit::environment, call.op->id);
    }
    for (const eng::Program& program : plan.programs) {
      auto& segments = rank.bound.emplace_back();
      for (const eng::Segment& segment : program.segments)
        for (auto& list = segments.emplace_back(); const eng::Action& action : segment.actions) {
          list.push_back({&action, &plan.calls[action.call], nullptr, nullptr, {}, {}, {}, {}});
          bind(rank, list.back());
        }
    }
    for (size_t k = 0; k < plan.constants.size(); ++k) upload(r, plan.constants[k], plan.constant_data[k]->data.data());
  }
}

Fleet::~Fleet() {
  for (Rank& rank : ranks_) {
    for (auto& program : rank.bound)
      for (auto& segment : program)
        for (Bound& bound : segment)
          if (bound.record) bound.kernel->drop_record(bound.record);
    for (size_t c = 0; c < rank.states.size(); ++c)
      if (rank.states[c]) kernels_.find(rank.plan->calls[c]).drop_state(rank.states[c]);
    for (Arena& arena : rank.arenas) {
      if (arena.tier) arena.tier->free(arena.handle, arena.bytes);
      if (!arena.tier || arena.storage) std::free(arena.memory);
    }
  }
}

void Fleet::bind(Rank& rank, Bound& bound) {
  const eng::Action& action = *bound.action;
  const size_t n = action.in.size() + action.out.size();
  std::vector<DLTensor> tensors(n);
  std::vector<std::array<int64_t, ENG_MAX_DIMS>> strides(n);
  std::vector<const DLTensor*> args(n, nullptr);
  const auto range = [&](const eng::View& v) { return Range{rank.address(v), eng::bytes(v.desc)}; };
  for (size_t k = 0; k < n; ++k) {
    const bool input = k < action.in.size();
    const eng::View& v = input ? action.in[k] : action.out[k - action.in.size()];
    if (!v.buffer) continue;
    if (counts(rank.plan->buffer(v.buffer))) bound.counted.insert(v.buffer);
    const Range at = range(v);
    (input ? bound.in : bound.out).push_back(at);
    const eng_desc& d = v.desc;
    strides[k].fill(1);
    for (uint32_t i = d.ndim; i-- > 1;) strides[k][i - 1] = strides[k][i] * d.dims[i];
    tensors[k] = {at.data,
                  {kDLCPU, 0},
                  static_cast<int32_t>(d.ndim),
                  eng::dtype_dlpack(d.dtype),
                  const_cast<int64_t*>(d.dims),
                  strides[k].data(),
                  0};
    args[k] = &tensors[k];
  }
  std::vector<Range> written = bound.out;
  if (action.workspace.buffer) written.push_back(range(action.workspace));
  for (const Range& r : written) {
    std::vector<char> read(r.n, 0);
    for (const Range& in : bound.in)
      if (in.data < r.data + r.n && r.data < in.data + in.n) {
        const auto from = std::max(in.data, r.data) - r.data, to = std::min(in.data + in.n, r.data + r.n) - r.data;
        std::fill(read.begin() + from, read.begin() + to, 1);
      }
    for (uint64_t from = 0, to = 0; from < r.n; from = to) {
      for (; from < r.n && read[from];) ++from;
      for (to = from; to < r.n && !read[to];) ++to;
      if (from < to) bound.spoiled.push_back({r.data + from, to - from});
    }
  }
  if (bound.call->op->collective) return;
  if (fault_.left_to_right && bound.call->op->id == std::string(ENG_OP_FOLD)) return;
  bound.kernel = &kernels_.find(*bound.call);
  eng::Sink sink;
  sink.check(
      bound.kernel->bind(rank.states[action.call], args.data(), static_cast<uint32_t>(n),
                         action.workspace.buffer ? range(action.workspace).data : nullptr, &bound.record, sink.get()),
      eng::Exit::environment, bound.call->op->id);
}

uint8_t* Fleet::address(size_t rank, const eng::View& view) const {
  return ranks_[rank].address(view);
}

void Fleet::upload(size_t rank, const eng::View& to, const void* from) {
  std::memcpy(address(rank, to), from, eng::bytes(to.desc));
  const Arena& arena = ranks_[rank].arena_of(to);
  if (arena.handle && arena.storage)
    arena.tier->write(arena.handle, ranks_[rank].offset_of(to), from, eng::bytes(to.desc), "a value");
}

void Fleet::fetch(size_t rank, const eng::View& from, void* to) const {
  const Arena& arena = ranks_[rank].arena_of(from);
  if (arena.handle && arena.storage)
    arena.tier->read(arena.handle, ranks_[rank].offset_of(from), to, eng::bytes(from.desc), "a value");
  else
    std::memcpy(to, address(rank, from), eng::bytes(from.desc));
}

// A copy to or from storage: what comes back is what was written.
void Fleet::cross(uint32_t r, const Bound& bound) {
  const Rank& rank = ranks_[r];
  const eng::View &from = bound.action->in[0], &to = bound.action->out[0];
  if (const Arena& arena = rank.arena_of(to); arena.storage) {
    arena.tier->write(arena.handle, rank.offset_of(to), bound.in[0].data, bound.in[0].n, "a value");
    const uint8_t other = bound.in[0].data[0] ^ 1;
    if (fault_.flips) arena.tier->write(arena.handle, rank.offset_of(to), &other, 1, "a value");
    return;
  }
  const Arena& arena = rank.arena_of(from);
  if (!arena.storage) return;
  arena.tier->read(arena.handle, rank.offset_of(from), bound.out[0].data, bound.out[0].n, "a value");
  if (std::memcmp(bound.out[0].data, bound.in[0].data, bound.in[0].n) != 0)
    complain(r, bound,
             fmt::format("tier {} gave other bytes than it was given",
                         rank.plan->arenas[rank.plan->buffer(from.buffer).arena].device));
}

void Fleet::complain(uint32_t rank, const Bound& bound, const std::string& what) {
  if (!complaint_.empty()) return;
  const Rank& r = ranks_[rank];
  const eng::Segment& segment = r.plan->programs[r.program].segments[r.segment];
  complaint_ = fmt::format("rank {}, {}/{} action {} ({} in {}): {}", rank, r.plan->programs[r.program].name,
                           segment.name, bound.action - segment.actions.data(), bound.call->op->id,
                           r.plan->labels[bound.action->label].text(), what);
}

// Stands at the first segment, from here on, that has anything to do.
void Fleet::enter(Rank& rank) {
  const auto& segments = rank.bound[rank.program];
  while (rank.segment < segments.size() && segments[rank.segment].empty()) ++rank.segment, rank.repetition = 0;
  rank.queues.assign(eng::queue_count, {});
  rank.running.clear();
  if (rank.segment == segments.size()) return;
  const auto& actions = segments[rank.segment];
  rank.uses.clear(), rank.live.clear(), rank.now_live = 0;
  for (const Bound& bound : actions)
    for (eng::Id id : bound.counted) ++rank.uses[id];
  rank.running.resize(actions.size());
  for (size_t a = actions.size(); a-- > 0;)
    rank.queues[static_cast<size_t>(actions[a].action->queue)].push_back(static_cast<uint32_t>(a));
}

bool Fleet::ready(const Rank& rank, size_t queue) const {
  if (rank.queues[queue].empty()) return false;
  const uint32_t a = rank.queues[queue].back();
  const Bound& bound = rank.bound[rank.program][rank.segment][a];
  const Running& now = rank.running[a];
  if (!now.begun)
    return std::all_of(bound.action->waits.begin(), bound.action->waits.end(),
                       [&](uint32_t w) { return rank.running[w].ended; });
  if (!bound.call->op->collective) return true;
  const int64_t group = bound.call->attrs.i("group");
  return collectives_.at(group)[now.sequence].begun.size() ==
         rank.plan->ranks.group(static_cast<eng::Id>(group)).size();
}

namespace {
template <class Ranges>
uint64_t hash_of(const Ranges& ranges) {
  uint64_t h = 0;
  for (const auto& r : ranges) h = XXH3_64bits_withSeed(r.data, r.n, h);
  return h;
}
}  // namespace

void Fleet::begin(uint32_t r, size_t queue) {
  Rank& rank = ranks_[r];
  const uint32_t a = rank.queues[queue].back();
  const Bound& bound = rank.bound[rank.program][rank.segment][a];
  Running& now = rank.running[a];
  now.begun = true;
  for (eng::Id id : bound.counted)
    if (rank.live.insert(id).second) rank.now_live += rank.plan->buffer(id).bytes;
  rank.most_live = std::max(rank.most_live, rank.now_live);
  if (fault_.keeps_scale && bound.call->op->id == std::string(ENG_OP_FINISH)) {
    const float one = 1;
    std::memcpy(address(r, rank.plan->scalars) + ENG_S_LOSS_SCALE * sizeof one, &one, sizeof one);
  }
  now.read = hash_of(bound.in);
  now.garbage = static_cast<uint8_t>(random_());
  for (const Range& range : bound.spoiled) std::memset(range.data, now.garbage, range.n);
  const eng::Call& call = *bound.call;
  if (!call.op->collective) return;
  const int64_t group = call.attrs.i("group");
  std::string key = call.op->id;
  for (const auto& d : call.in) key += " " + eng::describe(d);
  for (const auto& d : call.out) key += " " + eng::describe(d);
  auto& sequence = collectives_[group];
  now.sequence = rank.reached[group]++;
  if (now.sequence >= sequence.size()) sequence.resize(now.sequence + 1);
  Collective& collective = sequence[now.sequence];
  if (collective.begun.empty()) collective.key = key;
  if (collective.key != key)
    complain(r, bound, fmt::format("rank {} has {} there", collective.begun[0], collective.key));
  collective.begun.push_back(r);
}

void Fleet::end(uint32_t r, size_t queue) {
  Rank& rank = ranks_[r];
  const uint32_t a = rank.queues[queue].back();
  const Bound& bound = rank.bound[rank.program][rank.segment][a];
  Running& now = rank.running[a];
  if (hash_of(bound.in) != now.read) complain(r, bound, "its inputs changed while it ran");
  for (const Range& range : bound.spoiled)
    if (range.data[0] != now.garbage || std::memcmp(range.data, range.data + 1, range.n - 1) != 0)
      complain(r, bound, "somebody else wrote its outputs or its scratch while it ran");
  if (bound.call->op->collective) {
    exchange(r, bound, now);
  } else if (!bound.kernel) {
    fold_left_to_right(*bound.call, reinterpret_cast<const float*>(bound.in[0].data),
                       reinterpret_cast<float*>(bound.out[0].data));
  } else {
    eng::Sink sink;
    if (bound.kernel->launch(bound.record, &exec, sink.get()) != ENG_OK) complain(r, bound, sink.text());
    if (bound.call->storage) cross(r, bound);
    spoil(r, bound);
  }
  now.ended = true;
  for (eng::Id id : bound.counted)
    if (--rank.uses[id] == 0) rank.now_live -= rank.plan->buffer(id).bytes;
  rank.queues[queue].pop_back();
}

// Changes dx among the outputs of the head: (loss, dx, ...), or (dx, ...) of a divided one.
void Fleet::spoil(uint32_t r, const Bound& bound) const {
  if (!overflow_ || overflow_->rank != r) return;
  const std::string id = bound.call->op->id;
  const bool part = id == ENG_OP_VOCABULARY_GRAD;
  if (!part && id != ENG_OP_CROSS_ENTROPY_GRAD) return;
  const auto* counters = reinterpret_cast<const int64_t*>(address(r, ranks_[r].plan->counters));
  if (counters[ENG_C_MICRO] != overflow_->micro) return;
  const size_t dx = part ? 0 : 1;
  const uint16_t half = bound.call->out[dx].dtype == ENG_F16 ? 0x7c00 : 0x7f80;
  const float wide = INFINITY;
  const bool is_wide = bound.call->out[dx].dtype == ENG_F32;
  std::memcpy(bound.out[dx].data, is_wide ? static_cast<const void*>(&wide) : &half,
              is_wide ? sizeof wide : sizeof half);
}

void Fleet::exchange(uint32_t r, const Bound& bound, const Running& now) {
  Rank& rank = ranks_[r];
  const int64_t group = bound.call->attrs.i("group");
  const std::vector<uint32_t>& members = rank.plan->ranks.group(static_cast<eng::Id>(group));
  Collective& collective = collectives_[group][now.sequence];
  if (collective.given.empty())  // nobody may change his inputs before he has ended it
    for (uint32_t m : members) {
      const Rank& other = ranks_[m];
      for (const auto& left : other.queues) {
        if (left.empty()) continue;
        const Bound& theirs = other.bound[other.program][other.segment][left.back()];
        const Running& state = other.running[left.back()];
        if (state.begun && theirs.call->op->collective && theirs.call->attrs.i("group") == group &&
            state.sequence == now.sequence)
          for (const Range& in : theirs.in) collective.given[m].emplace_back(in.data, in.data + in.n);
      }
    }
  const auto input = [&](size_t member) -> const std::vector<uint8_t>& {
    return collective.given.at(members[member]).at(0);
  };
  const size_t n = members.size(),
               self = static_cast<size_t>(std::find(members.begin(), members.end(), r) - members.begin());
  const std::string op = bound.call->op->id;
  uint8_t* out = bound.out[0].data;
  const uint64_t bytes = bound.in[0].n, part = bytes / n;
  if (op == ENG_OP_ALL_GATHER) {
    for (size_t m = 0; m < n; ++m) std::memcpy(out + m * bytes, input(m).data(), bytes);
    rank.sent += (n - 1) * bytes;
  } else if (op == ENG_OP_ALL_TO_ALL) {
    for (size_t m = 0; m < n; ++m) std::memcpy(out + m * part, input(m).data() + self * part, part);
    rank.sent += (n - 1) * part;
  } else if (op == ENG_OP_BROADCAST) {
    const auto root = static_cast<size_t>(bound.call->attrs.i("root"));
    std::memcpy(out, input(root).data(), bytes);
    rank.sent += root == self ? (n - 1) * bytes : 0;
  } else {
    complain(r, bound, "is no collective that moves bytes only");
  }
  if (++collective.ended == n) collective.given.clear();
}

int Fleet::changes(const Rank& rank, size_t queue) const {
  const uint32_t a = rank.queues[queue].back();
  const auto& counted = rank.bound[rank.program][rank.segment][a].counted;
  if (!rank.running[a].begun)
    return std::any_of(counted.begin(), counted.end(), [&](eng::Id id) { return !rank.live.count(id); });
  const bool ends = std::any_of(counted.begin(), counted.end(), [&](eng::Id id) { return rank.uses.at(id) == 1; });
  return ends ? -1 : 0;
}

size_t Fleet::pick(const std::vector<std::pair<uint32_t, size_t>>& list, const Schedule& schedule) {
  std::vector<size_t> from(list.size());
  for (size_t k = 0; k < from.size(); ++k) from[k] = k;
  if (schedule.reversed) {
    const auto& [program, segment, waiter, awaited] = *schedule.reversed;
    std::vector<size_t> others, first;
    for (size_t k : from) {
      const Rank& rank = ranks_[list[k].first];
      const bool there =
          rank.segment == segment && rank.plan->programs[rank.program].name == program && waiter < rank.running.size();
      if (there && !rank.running[waiter].ended && rank.queues[list[k].second].back() == awaited) continue;
      others.push_back(k);
      if (there && static_cast<size_t>(rank.bound[rank.program][segment][waiter].action->queue) == list[k].second)
        first.push_back(k);
    }
    if (!others.empty()) from = others;
    if (!first.empty() && chance(random_, 0.7)) from = first;
  }
  if (schedule.greedy) {
    int most = -1;
    for (size_t k : from) most = std::max(most, changes(ranks_[list[k].first], list[k].second));
    std::erase_if(from, [&](size_t k) { return changes(ranks_[list[k].first], list[k].second) < most; });
  }
  if (!schedule.stubborn) return from[below(random_, from.size())];
  if (chance(random_, 0.03)) favour_[below(random_, favour_.size())] = random_();
  const auto key = [&](size_t k) { return favour_[list[k].first * eng::queue_count + list[k].second]; };
  return *std::max_element(from.begin(), from.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
}

bool Fleet::run(const std::string& program, const Schedule& schedule) {
  if (!complaint_.empty()) return false;
  random_.seed(schedule.seed);
  favour_.resize(ranks_.size() * eng::queue_count);
  for (uint64_t& f : favour_) f = random_();
  collectives_.clear();
  for (Rank& rank : ranks_) {
    const auto& all = rank.plan->programs;
    rank.program = static_cast<size_t>(&rank.plan->program(program) - all.data());
    rank.segment = 0, rank.repetition = 0, rank.reached.clear();
    for (size_t a = 0; a < rank.arenas.size(); ++a) {
      const uint64_t kept = rank.plan->arenas[a].persistent;
      std::memset(rank.arenas[a].memory + kept, static_cast<uint8_t>(random_()), rank.arenas[a].bytes - kept);
    }
    enter(rank);
  }
  std::vector<std::pair<uint32_t, size_t>> list;
  while (complaint_.empty()) {
    list.clear();
    bool complete = true;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      const auto& segments = rank.plan->programs[rank.program].segments;
      if (rank.segment < segments.size() &&
          std::all_of(rank.queues.begin(), rank.queues.end(), [](const auto& q) { return q.empty(); })) {
        if (++rank.repetition >= segments[rank.segment].repeat) ++rank.segment, rank.repetition = 0;
        enter(rank);
      }
      complete = complete && rank.segment == segments.size();
      for (size_t q = 0; q < eng::queue_count; ++q)
        if (ready(rank, q)) list.push_back({r, q});
    }
    if (complete) return true;
    if (list.empty()) {
      for (uint32_t r = 0; r < ranks_.size(); ++r)
        for (const auto& left : ranks_[r].queues)
          if (!left.empty())
            complain(r, ranks_[r].bound[ranks_[r].program][ranks_[r].segment][left.back()], "waits for ever");
      break;
    }
    const auto [r, q] = list[pick(list, schedule)];
    const Rank& rank = ranks_[r];
    if (rank.running[rank.queues[q].back()].begun)
      end(r, q);
    else
      begin(r, q);
  }
  return false;
}

}  // namespace equality
