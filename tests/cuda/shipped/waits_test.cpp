// SPDX-License-Identifier: Apache-2.0
// Plans on the plugin as it ships, on the software CUDA runtime (CPU): each wait of a plan is left out in turn, and the
// stream of what was to be waited for works only when no other can. And whole segments as graphs, or action by action.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "core/base/error.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "tests/cuda/runtime/software.hpp"
#include "tests/devices/waits.hpp"

using namespace devices;

namespace {

struct Order {
  // The order of work on streams; the stream that works only when no other can, and how many pieces more it then does.
  int seed = 1, last = -1, ahead = 0;
  int fill = 0;  // bytes of what has been copied in part
};

const Change none = {};

Result run(const Model& model, const On& on, const Order& order = {}, const Change& change = none) {
  setenv("SOFTCUDA_SEED", std::to_string(order.seed).c_str(), 1);
  setenv("SOFTCUDA_LAST", std::to_string(order.last).c_str(), 1);
  setenv("SOFTCUDA_AHEAD", std::to_string(order.ahead).c_str(), 1);
  setenv("SOFTCUDA_FILL", std::to_string(order.fill).c_str(), 1);
  setenv("SOFTCUDA_DEVICES", std::to_string(model.ranks).c_str(), 1);
  software_cuda_reset();
  return Training(model, on, change).run();
}

On cuda(const std::string& strategy, const std::string& offload = "") {
  On on;
  on.device = "cuda", on.strategy = strategy, on.offload = offload;
  return on;
}

// Queues of the device are streams; the host works through the others, and waits for events itself.
bool on_stream(const eng::Plan& plan, const eng::Action& action) {
  return !plan.calls[action.call].on_host && !plan.calls[action.call].op->collective &&
         (action.queue == eng::Queue::compute || action.queue == eng::Queue::h2d || action.queue == eng::Queue::d2h);
}

// True if the host, which enqueues in list order, waits between the two for what the first one ends with.
bool ordered_by_host(const eng::Plan& plan, const eng::Segment& without, uint32_t first, uint32_t second) {
  const eng::Order order = eng::order_of(without);
  const auto queue = static_cast<size_t>(without.actions[first].queue);
  for (uint32_t h = first + 1; h < second; ++h)
    if (!on_stream(plan, without.actions[h]) && order.before[h][queue] > order.position[first]) return true;
  return false;
}

struct Seen {
  int all = 0, needed = 0, changed = 0;
};

Seen without_each_wait(const Model& model, On on) {
  on.graphs = false;  // in a graph the order of capture is random, not that of streams
  const Result expected = run(model, on);
  software_cuda_reset();
  const eng::Plan plan = Training(model, on).plan();
  const auto& segments = plan.program("train").segments;
  Seen seen;
  std::map<eng::Queue, int> last_of;
  for (size_t s = 0; s < segments.size(); ++s)
    for (size_t a = 0; a < segments[s].actions.size(); ++a)
      for (size_t w = 0; w < segments[s].actions[a].waits.size(); ++w) {
        const eng::Action &action = segments[s].actions[a], &awaited = segments[s].actions[action.waits[w]];
        if (!on_stream(plan, action) || !on_stream(plan, awaited)) continue;
        eng::Plan without = without_wait(plan, s, a, w);
        ++seen.all;
        const auto open = left_open(plan, segments[s], segment(without, s));
        if (std::all_of(open.begin(), open.end(), [&](uint32_t x) {
              return ordered_by_host(plan, segment(without, s), x, static_cast<uint32_t>(a));
            }))
          continue;
        ++seen.needed;
        const auto name = [&](const eng::Action& one) {
          return std::string(plan.calls[one.call].op->id) + " in " + plan.labels[one.label].text();
        };
        INFO(describe(model, on) << ": " << segments[s].name << " action " << a << " (" << name(action)
                                 << ") without its wait for " << action.waits[w] << " (" << name(awaited) << ")");
        CHECK_FALSE(eng::problems(without, 1).empty());
        const auto leave_out = [&](eng::Plan& p) {
          segment(p, s).actions[a].waits = segment(without, s).actions[a].waits;
        };
        bool changed = false;
        int& last = last_of[awaited.queue];  // as for the wait before that was for this queue
        for (int tried = 0; tried < 24 && !changed; ++tried) {
          if (tried) last = last % 6 + 1;
          try {
            // Copied values may be zeros themselves, such as the first states of a scan. Numbers of tokens are not, and
            // would be read outside of their table if they were 255.
            const Order order{1 + tried / 6, last, tried / 12, tried / 6 % 2 ? 255 : 0};
            changed = difference(expected, run(model, on, order, leave_out)) != "";
          } catch (const eng::Error&) {  // such as a token that the vocabulary does not have
            changed = true;
          }
        }
        seen.changed += changed;
        CHECK(changed);
      }
  std::cout << describe(model, on) << ": of " << seen.all << " waits between streams " << seen.needed
            << " order bytes that the host does not, " << seen.changed << " change the results when left out\n";
  return seen;
}

}  // namespace

TEST_CASE("software CUDA runtime (CPU): segments as graphs have the bits of actions one by one") {
  for (const char* offload : {"", "optimizer = 'host'\n"}) {
    On on = cuda("none", offload);
    const Result graphs = run({"llama", 1, 2}, on);
    CHECK(software_cuda_graphs() > 0);
    on.graphs = false;
    const Result single = run({"llama", 1, 2}, on);
    CHECK(software_cuda_graphs() == 0);
    CHECK(difference(graphs, single) == "");
  }
}

TEST_CASE("software CUDA runtime (CPU): each wait that is left out is seen") {
  CHECK(without_each_wait({"llama", 1, 2}, cuda("none")).needed >= 4);
}

// Each has the optimizer's states in host memory. At least that many waits are needed, on one rank and on two.
void states_in_host_memory(const std::string& model, int least, int least_on_two) {
  for (const char* offload : {"optimizer = 'host'\nactivations = 'host'\n", "optimizer = 'host'\nupdate = 'device'\n",
                              "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n"})
    CHECK(without_each_wait({model, 1, 1}, cuda("none", offload)).needed >= least);
  CHECK(without_each_wait({model, 2, 1}, cuda("zero3", "optimizer = 'host'\nparameters = 'host'\n")).needed >=
        least_on_two);
}

TEST_CASE("software CUDA runtime (CPU): each wait that is left out is seen, with states in host memory", "[.slow]") {
  states_in_host_memory("llama", 16, 4);
}

TEST_CASE("software CUDA runtime (CPU): each wait that is left out is seen, in plans of opt", "[.slow]") {
  CHECK(without_each_wait({"opt", 1, 2}, cuda("none")).needed >= 4);
  states_in_host_memory("opt", 15, 4);
}

TEST_CASE("software CUDA runtime (CPU): each wait that is left out is seen, in plans of mamba", "[.slow]") {
  CHECK(without_each_wait({"mamba", 1, 2}, cuda("none")).needed >= 4);
  states_in_host_memory("mamba", 13, 3);
}
