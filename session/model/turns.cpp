// SPDX-License-Identifier: Apache-2.0
#include "session/model/turns.hpp"

#include <algorithm>
#include <tuple>

#include "core/base/error.hpp"

namespace eng {
namespace {

// The passes of a rank. Groups of micro-batches, of as many as there are ranks or a few more, go through all parts: the
// first one of a group has come from the last rank back to the first one when its last one has gone there. With several
// parts a rank is ahead by twice the ranks behind it: the way of a value through all ranks is all that there is time
// for. A reference is ahead of the model by a group, and then each of its passes is followed by one of the model: so no
// rank waits for it, and it makes no activations wait.
std::vector<StageTurn> passes_of(uint32_t rank, const Pipeline& p) {
  std::vector<StageTurn> others, forwards, backwards, out;  // others: forwards of the reference
  const uint32_t groups = std::max(p.micro_batches / p.ranks, 1U), behind = p.ranks - 1 - rank,
                 parts = p.parts - p.reference;
  const auto first = [&](uint32_t group) { return uint64_t{group} * p.micro_batches / groups; };
  for (uint32_t group = 0; group < groups; ++group)
    for (uint32_t part = 0; part < parts; ++part)
      for (auto micro = static_cast<uint32_t>(first(group)); micro < first(group + 1); ++micro) {
        if (p.reference) others.push_back({StageTurn::forward, micro, part});
        forwards.push_back({StageTurn::forward, micro, p.reference + part});
        backwards.push_back({StageTurn::backward, micro, p.parts - 1 - part});
      }
  const uint32_t most = p.micro_batches / groups + (p.micro_batches % groups != 0);
  const size_t ahead = std::min<size_t>(forwards.size(), parts == 1 ? behind : (parts - 1) * most + 2 * behind);
  const size_t lead = std::min<size_t>(others.size(), size_t{parts} * most);
  out.assign(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(lead));
  for (size_t k = 0; k < forwards.size() + ahead; ++k) {
    if (k + lead < others.size()) out.push_back(others[k + lead]);
    if (k < forwards.size()) out.push_back(forwards[k]);
    if (k >= ahead) out.push_back(backwards[k - ahead]);
  }
  return out;
}

// The values that passes of virtual stages give others: by the direction, the micro-batch and the virtual stage.
template <class T>
struct ByStage {
  ByStage(const Pipeline& p, T none) : pipeline(p), values(size_t{2} * p.micro_batches * p.stages(), none) {}
  T& at(bool back, uint32_t micro, uint32_t stage) {
    return values[(size_t{back} * pipeline.micro_batches + micro) * pipeline.stages() + stage];
  }
  const Pipeline pipeline;
  std::vector<T> values;
};

// Does the next turns of the ranks as long as `next(rank)` says that it did one. Throws if some are left.
template <class Next, class Done>
void play(uint32_t ranks, const Next& next, const Done& done) {
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < ranks; ++r)
      while (!done(r) && next(r)) moved = true;
  }
  for (uint32_t r = 0; r < ranks; ++r)
    if (!done(r)) throw Error(Exit::bug, fmt::format("rank {} of a pipeline of {} waits for ever", r, ranks));
}

// True if the pass takes a value of another virtual stage, which is then in `from`; and if it gives one.
bool takes(const Pipeline& p, bool back, uint32_t stage, uint32_t& from) {
  from = back ? stage + 1 : stage - 1;
  return stage != (back ? p.stages() - 1 : 0);
}
bool gives(const Pipeline& p, bool back, uint32_t stage) {
  return stage != (back ? p.first_back() : p.stages() - 1);
}

}  // namespace

std::vector<std::vector<StageTurn>> turns_of(const Pipeline& p) {
  constexpr int64_t unknown = -1;
  struct Event {  // a pass from when it begins, or an exchange from when its value is there
    int64_t time;
    bool pass, back;
    uint32_t stage, micro;  // that give the value
    StageTurn turn;
  };
  std::vector<std::vector<StageTurn>> passes;
  std::vector<std::vector<Event>> events(p.ranks);
  for (uint32_t r = 0; r < p.ranks; ++r) passes.push_back(passes_of(r, p));
  std::vector<size_t> at(p.ranks, 0);
  std::vector<int64_t> clock(p.ranks, 0);
  ByStage<int64_t> made(p, unknown);
  const auto next = [&](uint32_t r) {
    const StageTurn& pass = passes[r][at[r]];
    const bool back = pass.back();
    const uint32_t stage = p.stage(r, pass.part);
    uint32_t from = 0;
    if (takes(p, back, stage, from)) {
      const int64_t there = made.at(back, pass.micro, from);
      if (there == unknown) return false;
      clock[r] = std::max(clock[r], there);
      events[r].push_back({there,
                           false,
                           back,
                           from,
                           pass.micro,
                           {back ? StageTurn::receive_back : StageTurn::receive, pass.micro, pass.part}});
    }
    events[r].push_back({clock[r], true, back, stage, pass.micro, pass});
    clock[r] += back ? 2 : 1;
    made.at(back, pass.micro, stage) = clock[r];
    if (gives(p, back, stage))
      events[r].push_back({clock[r],
                           false,
                           back,
                           stage,
                           pass.micro,
                           {back ? StageTurn::send_back : StageTurn::send, pass.micro, pass.part}});
    ++at[r];
    return true;
  };
  play(p.ranks, next, [&](uint32_t r) { return at[r] == passes[r].size(); });
  std::vector<std::vector<StageTurn>> out(p.ranks);
  for (uint32_t r = 0; r < p.ranks; ++r) {
    const auto key = [](const Event& e) { return std::tuple(e.time, e.pass, !e.back, e.micro, e.stage); };
    std::sort(events[r].begin(), events[r].end(), [&](const Event& a, const Event& b) { return key(a) < key(b); });
    for (const Event& e : events[r]) out[r].push_back(e.turn);
  }
  return out;
}

double pipeline_seconds(const Pipeline& p, const std::vector<std::vector<StageTime>>& times, double exchange) {
  const std::vector<std::vector<StageTurn>> turns = turns_of(p);
  std::vector<size_t> at(p.ranks, 0);
  std::vector<double> passes(p.ranks, 0), exchanges(p.ranks, 0);  // until when a rank is busy with them
  ByStage<double> made(p, 0), arrived(p, 0);
  const auto next = [&](uint32_t r) {
    const StageTurn& turn = turns[r][at[r]];
    const bool back = turn.back();
    const uint32_t stage = p.stage(r, turn.part);
    uint32_t from = 0;
    const bool given = takes(p, back, stage, from);
    if (turn.computes()) {
      if (given) passes[r] = std::max(passes[r], arrived.at(back, turn.micro, from));
      passes[r] += back ? times[r][turn.part].backward : times[r][turn.part].forward;
      made.at(back, turn.micro, stage) = passes[r];
      return ++at[r], true;
    }
    if (turn.sends()) return false;  // the receiver meets the sender
    const uint32_t other = from % p.ranks;
    const StageTurn meets{back ? StageTurn::send_back : StageTurn::send, turn.micro, from / p.ranks};
    if (at[other] == turns[other].size() || !(turns[other][at[other]] == meets)) return false;
    exchanges[r] = std::max({exchanges[r], exchanges[other], made.at(back, turn.micro, from)}) + exchange;
    exchanges[other] = arrived.at(back, turn.micro, from) = exchanges[r];
    return ++at[r], ++at[other], true;
  };
  play(p.ranks, next, [&](uint32_t r) { return at[r] == turns[r].size(); });
  return *std::max_element(passes.begin(), passes.end());
}

double equal_bubble(const Pipeline& p) {
  std::vector<StageTime> times(p.parts, {1, 2});
  std::fill_n(times.begin(), p.reference, StageTime{1, 0});
  const double seconds = pipeline_seconds(p, std::vector(p.ranks, times), 0);
  return 1 - (3.0 * p.parts - 2.0 * p.reference) * p.micro_batches / seconds;
}

}  // namespace eng
