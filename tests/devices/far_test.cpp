// SPDX-License-Identifier: Apache-2.0
// A device with discrete memory, queues and graphs trains to the same bits as the cpu.
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <csignal>

#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/plan/waits.hpp"
#include "engine/ops.h"
#include "session/report/context.hpp"
#include "session/run/host_rate.hpp"
#include "train.hpp"

using namespace devices;
using Catch::Contains;

namespace {

// The results of the cpu.
const Result& expected(const Model& model, const std::string& strategy) {
  static std::map<std::string, Result> known;
  const std::string key =
      model.name + strategy + std::to_string(model.ranks) + " " + std::to_string(model.accumulate) + model.more;
  auto it = known.find(key);
  if (it == known.end()) {
    On on;
    on.strategy = strategy;
    it = known.emplace(key, Training(model, on).run()).first;
  }
  return it->second;
}

std::string far_differs(const Model& model, On on) {
  on.device = "far";
  return difference(expected(model, on.strategy), Training(model, on).run());
}

const char* const models[] = {"llama", "opt", "mamba"};
const char* const strategies[] = {"none", "zero1", "zero2", "zero3", "two_level"};

void compare(const std::vector<std::string>& names, int seeds, std::vector<bool> with_graphs) {
  int64_t number = 0;
  for (const std::string& name : names)
    for (const char* strategy : strategies)
      for (int seed = 1; seed <= seeds; ++seed)
        for (size_t k = 0; k < with_graphs.size(); ++k) {
          const uint32_t ranks = strategy == std::string("two_level") ? 4 : 2;
          On on;
          on.strategy = strategy, on.graphs = with_graphs[k], on.delay = 30, on.seed = ++number;
          on.on_queues = number % 4 > 1;
          const Model model{name, ranks, 1 + seed % 3};
          INFO(describe(model, on));
          CHECK(far_differs(model, on) == "");
          with_graphs[k] = with_graphs.size() == 1 ? !with_graphs[k] : with_graphs[k];
        }
}

}  // namespace

TEST_CASE("every strategy trains on far as on the cpu") {
  compare({"llama"}, 1, {true});
}

TEST_CASE("all models and strategies train on far as on the cpu, with and without graphs, in many orders", "[.slow]") {
  compare({"llama", "opt", "mamba"}, 4, {false, true});
}

TEST_CASE("one rank trains on far as on the cpu") {
  for (const char* name : models)
    for (const bool graphs : {false, true}) {
      On on;
      on.graphs = graphs, on.delay = 30;
      const Model model{name, 1, 3};
      INFO(describe(model, on));
      CHECK(far_differs(model, on) == "");
    }
}

// The places of states, and where they are updated.
const char* const offloads[] = {
    "optimizer = 'host'\n",
    "optimizer = 'host'\nupdate = 'device'\n",
    "optimizer = 'host'\nmaster = 'none'\ngradients = 'host'\n",
    "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n",
    "parameters = 'host'\ngradients = 'host'\n",
    "activations = 'host'\n",
    "optimizer = 'host'\ngradients = 'shelf'\n",
    "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\nactivations = 'host'\n",
    "optimizer = 'host'\nratio = 0.5\n",
    "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\n",
    "optimizer = 'host'\nupdate_late = true\n",
    "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\ngradients = 'host'\nupdate_late = true\n",
    "optimizer = 'drawer'\nparameters = 'host'\nactivations = 'host'\nupdate_late = true\n",
    "optimizer = 'host'\nupdate_early = true\nearly_share = 1.0\n",
    "optimizer = 'drawer'\ngradients = 'host'\nupdate_early = true\nearly_share = 0.5\nupdate_late = true\n",
    // Storage, which only the host reaches.
    "optimizer = 'drawer'\n",
    "optimizer = 'drawer'\nupdate = 'device'\nratio = 0.5\ngradients = 'drawer'\n",
    "optimizer = 'drawer'\ngradients = 'drawer'\nparameters = 'drawer'\nactivations = 'drawer'\n",
    "optimizer = 'press'\ngradients = 'press'\nparameters = 'press'\nactivations = 'press'\n",
};

TEST_CASE("states in host memory beside far give the same bits, in any order of its queues", "[.slow]") {
  int64_t number = 0;
  for (const char* offload : offloads)
    for (const char* strategy : {"none", "zero2", "zero3"}) {
      On on;
      on.offload = offload, on.strategy = strategy, on.delay = 30, on.seed = ++number, on.graphs = number % 2;
      const Model model{models[number % 3], strategy == std::string("none") ? 1u : 2u, 2};
      INFO(describe(model, on));
      CHECK(far_differs(model, on) == "");
    }
}

TEST_CASE("packed weights that come from a tier are decoded beside the computation, in any order of the queues") {
  const std::string adapter = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
  int64_t number = 0;
  for (const char* frozen : {"nf4", "int8"})
    for (const char* offload : {"parameters = 'host'\n", "parameters = 'drawer'\n", ""})
      for (const char* strategy : {"none", "zero3"}) {
        On on;
        on.offload = offload, on.strategy = strategy, on.delay = 30, on.seed = ++number, on.graphs = number % 2;
        const uint32_t ranks = strategy == std::string("none") ? 1 : 2;
        const Model model{"llama", ranks, 2, std::string("[precision]\nfrozen = '") + frozen + "'\n" + adapter};
        INFO(describe(model, on));
        CHECK(far_differs(model, on) == "");
        on.device = "far";
        const eng::Plan plan = eng::make_setup(config(model, on), registry(), 0, {0, ranks, 0, ranks}).plan;
        const eng::Queue queue = ranks > 1 ? eng::Queue::comm : *offload ? eng::Queue::h2d : eng::Queue::compute;
        size_t decoded = 0;
        for (const eng::Segment& segment : plan.program("train").segments)
          for (const eng::Action& action : segment.actions)
            if (plan.calls[action.call].op->id == std::string(ENG_OP_UNPACK)) {
              CHECK(action.queue == queue);
              ++decoded;
            }
        CHECK(decoded > 0);
      }
}

TEST_CASE("a plan states the threads of updates on the host") {
  const Model model{"llama", 1, 1};
  On on;
  on.offload = "optimizer = 'host'\n";
  const auto stated = [&](const std::vector<std::pair<std::string, int64_t>>& threads) {
    eng::Config c = config(model, on);
    for (const auto& [section, n] : threads) c.section(section).set("threads", n, "test");
    eng::Setup setup = eng::make_setup(c, registry());
    const std::string text = eng::plan_text(setup.plan, eng::report_context(setup, c));
    const size_t line = text.find("  update on host");
    return line == text.npos ? "" : text.substr(line, text.find('\n', line) - line);
  };
  const std::string here = "  update on host    ", turn = ", in turn with what the device computes";
  CHECK(stated({{"device", 1}}) == here + "1 of 1 threads of a rank" + turn);
  CHECK(stated({{"device", 3}}) == here + "3 of 3 threads of a rank" + turn);
  on.device = "far";
  CHECK(stated({{"host", 3}}) == here + "3 of 3 threads of a rank, while the device computes");
  on.offload += "update = 'device'\n";
  CHECK(stated({}) == "");

  on.offload = "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.25\n";
  {
    const eng::Config c = config(model, on);
    const eng::Setup setup = eng::make_setup(c, registry());
    CHECK_THAT(eng::plan_text(setup.plan, eng::report_context(setup, c)),
               Catch::Contains("\n  update on device  75 % of what is on tiers, beside that\n"));
  }

  // The number is that of the calls.
  on.offload = "optimizer = 'host'\n";
  eng::Config c = config(model, on);
  c.section("host").set("threads", int64_t{3}, "test");
  eng::Setup setup = eng::make_setup(c, registry());
  for (eng::Call& call : setup.plan.calls)
    if (call.on_host) call.parallel = 2;
  const eng::HostUpdate fewer = *eng::host_update(setup.plan, setup.host.get());
  CHECK((fewer.threads == 2 && fewer.of == 3 && fewer.overlapped));
  // The number of threads of a described device's host is unknown.
  c.section("device").set("describe", std::string("a800-80g"), "test");
  eng::Setup card = eng::make_plan_only(c, registry());
  const auto json = nlohmann::json::parse(eng::plan_json(card.plan, eng::report_context(card, c)))["update_on_host"];
  CHECK((json["threads"].is_null() && json["host_threads"].is_null() && json["beside_compute"] == true));
}

TEST_CASE("the rate of a host's memory is measured where a plan assumes it, and told where it differs") {
  On on;
  on.device = "far", on.offload = "optimizer = 'host'\n";
  const Model model{"llama", 1, 1};
  eng::Config c = config(model, on);
  CHECK(eng::assumes_host_rate(eng::make_setup(c, registry()), c));
  // Arenas of a few pages are not measured: they are in caches.
  CHECK_FALSE(eng::host_rate_for(eng::make_setup(c, registry()), c));
  c.section("host").set("memory_bandwidth", int64_t{1} << 36, "test");
  CHECK_FALSE(eng::assumes_host_rate(eng::make_setup(c, registry()), c));
  on.offload = "optimizer = 'host'\nupdate = 'device'\n";
  CHECK_FALSE(eng::assumes_host_rate(eng::make_setup(config(model, on), registry()), config(model, on)));
  on.device = "cpu", on.offload = "optimizer = 'host'\n";  // its own memory, which it does not reach by a link
  CHECK_FALSE(eng::assumes_host_rate(eng::make_setup(config(model, on), registry()), config(model, on)));
  CHECK(eng::measured_host_rate(2, 4 << 20) > 1e8);
  CHECK(eng::host_rate_note({}).empty());
  for (const double near : {64e9, 85e9, 106e9}) CHECK(eng::host_rate_note(near).empty());
  CHECK_THAT(eng::host_rate_note(51e9), Catch::Contains("51 GB/s") && Catch::Contains("85") &&
                                            Catch::Contains("host.memory_bandwidth = \"51000MB\""));
  CHECK_FALSE(eng::host_rate_note(120e9).empty());
}

TEST_CASE("what a piece of an update gives back leaves while the next one comes") {
  for (const bool stored : {false, true}) {
    On on;
    on.device = "far", on.offload = stored ? "optimizer = 'drawer'\n" : "optimizer = 'host'\nupdate = 'device'\n";
    INFO(on.offload);
    const eng::Setup setup = eng::make_setup(config({"llama", 1, 1}, on), registry());
    eng::Machine machine;  // only these take time
    (stored ? machine.storage_read : machine.host_link) = 1e6, machine.storage_write = 1e6;
    double comes = 0, leaves = 0;
    for (const eng::Action& action : setup.plan.program("train").segments.back().actions) {
      const double seconds = action.out.empty() ? 0 : double(eng::bytes(action.out[0].desc)) / 1e6;
      if (action.queue == (stored ? eng::Queue::read : eng::Queue::h2d)) comes += seconds;
      if (action.queue == (stored ? eng::Queue::write : eng::Queue::d2h)) leaves += seconds;
    }
    const eng::StepTimes times = eng::step_times(setup.plan, machine);
    const double seconds = stored ? times.storage : times.copies;
    CHECK(leaves > 0.9 * comes);
    CHECK(seconds > comes);
    CHECK(seconds < 1.4 * comes);  // one after the other: twice
  }
}

TEST_CASE("another batch, another result") {
  const Model model{"llama", 1, 2};
  On on;
  Training one(model, on);
  one.begin();
  one.fill(0);
  one.step();
  CHECK(difference(expected(model, "none"), Training({"llama", 1, 3}, on).run()) != "");
}

TEST_CASE("graphs are launched in place of actions") {
  const Model model{"llama", 2, 2};
  On on;
  on.device = "far";
  on.strategy = "zero2";
  const auto per_step = [&] {
    Training training(model, on);
    training.begin();
    training.fill(0);
    const Counts before = counts();
    training.step();
    const Counts after = counts();
    return Counts{after.launched - before.launched, after.captured - before.captured, after.replayed - before.replayed};
  };
  const Counts with = per_step();
  CHECK(with.launched == 0);
  CHECK(with.captured == 0);  // not in a step
  CHECK(with.replayed > 10);  // collectives on the host cut segments into islands
  on.on_queues = true;
  CHECK(per_step().replayed == 2 * 3);  // one for each segment of each rank
  on.on_queues = false;
  on.uncapturable = ENG_OP_SUM_SQUARES;  // in the update alone
  const Counts some = per_step();
  CHECK(some.launched > 10);
  CHECK((some.replayed > 0 && some.replayed < with.replayed));
  CHECK(far_differs(model, on) == "");
  on.graphs = false;
  const Counts without = per_step();
  CHECK(without.launched > some.launched);
  CHECK(without.replayed == 0);
}

TEST_CASE("memory of far is not the host's") {
  On on;
  on.device = "far";
  Training training({"llama", 1, 1}, on);
  const eng::Plan& plan = training.plan();
  REQUIRE(plan.arenas.size() == 2);
  CHECK(plan.arenas[1].kind == "pinned");
  CHECK_THROWS_WITH(training.executor().host<int64_t>(plan.counters), Contains("counters is not in host memory"));
  const auto* there = reinterpret_cast<volatile char*>(training.executor().address(plan.counters));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*there == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("an error that comes late is told with its action") {
  for (const bool graphs : {false, true}) {
    On on;
    on.device = "far", on.graphs = graphs;
    Training training({"llama", 1, 2}, on);
    training.begin();
    training.fill(0);
    training.executor().host<int32_t>(training.plan().field("tokens"))[15] = 1000;  // of the second micro-batch
    CHECK_THROWS_WITH(training.step(), Contains("device far, eng.embedding/1 in ") && Contains("1000"));
    // The device goes on.
    training.begin();
    training.fill(0);
    training.step();
  }
}

TEST_CASE("no action is blamed where the device does not come back after a late error") {
  for (const bool graphs : {false, true}) {
    On on;
    on.device = "far", on.graphs = graphs, on.mortal = true;
    Training training({"llama", 1, 2}, on);
    training.begin();
    training.fill(0);
    training.executor().host<int32_t>(training.plan().field("tokens"))[15] = 1000;
    CHECK_THROWS_WITH(training.step(), Contains("1000") && Contains(" (in program train)") && !Contains(" in begin"));
  }
}

namespace {

struct Times final : eng::ActionRecorder {
  void add(const Event& event) override { events.push_back(event); }
  std::vector<Event> events;
};

// The nth copy in the first segment of a step that writes a buffer.
size_t copy_of(const eng::Segment& segment, const eng::Plan& plan, const std::string& buffer, size_t nth) {
  for (size_t a = 0; a < segment.actions.size(); ++a) {
    const eng::Action& action = segment.actions[a];
    if (action.queue == eng::Queue::h2d && plan.buffer(action.out[0].buffer).name == buffer && nth-- == 0) return a;
  }
  throw std::logic_error("no copy of " + buffer);
}
// The first action of the compute queue that reads a buffer.
size_t reader_of(const eng::Segment& segment, const eng::Plan& plan, const std::string& buffer) {
  for (size_t a = 0; a < segment.actions.size(); ++a)
    for (const eng::View& v : segment.actions[a].in)
      if (segment.actions[a].queue == eng::Queue::compute && v.buffer && plan.buffer(v.buffer).name == buffer) return a;
  throw std::logic_error("nobody reads " + buffer);
}

}  // namespace

// A copy is held back until an action of the forward has run, which shows that the two overlap: the forward needed it
// not, and it did not need the forward.
TEST_CASE("the batch is copied while the step computes") {
  const Model model{"llama", 1, 3};
  On on;
  on.device = "far", on.graphs = false;
  const eng::Plan plan = Training(model, on).plan();
  const eng::Segment& first = plan.program("train").segments[0];
  const size_t labels = copy_of(first, plan, "labels", 0), later = copy_of(first, plan, "tokens", 1),
               read = reader_of(first, plan, "labels");
  REQUIRE(read > 15);  // after the layers' forward
  const auto last = first.actions.size() - 1;
  REQUIRE(first.actions[last].queue == eng::Queue::compute);
  // Threads may be slow: the forward waits in its middle until the copy has begun.
  const size_t middle = read / 2;
  for (size_t a : {middle, middle + 1}) REQUIRE(first.actions[a].queue == eng::Queue::compute);
  on.patience = 2000;
  for (const auto& [copy, beside] : {std::pair(labels, read - 1), {later, last}}) {
    on.held = number_of(plan, "train", 0, copy), on.freed = number_of(plan, "train", 0, beside);
    on.late = number_of(plan, "train", 0, middle);
    CHECK(far_differs(model, on) == "");
    Training training(model, on);
    training.begin();
    training.fill(0);
    Times times;
    training.executor().record(&times);
    training.step();
    REQUIRE(times.events.size() > first.actions.size());
    // In list order, segment by segment.
    const auto &moved = times.events[copy], &computed = times.events[beside];
    CHECK(moved.queue == eng::Queue::h2d);
    CHECK(moved.begin < times.events[middle + 1].begin);
    CHECK(moved.end > computed.begin);
    CHECK(moved.reached <= moved.begin);
  }
  // The copies with which the first micro-batch starts cannot wait for the forward: there the order holds.
  const size_t tokens = copy_of(first, plan, "tokens", 0);
  on.held = number_of(plan, "train", 0, tokens), on.freed = number_of(plan, "train", 0, read - 1);
  on.late = -1, on.patience = 20;
  Training training(model, on);
  training.begin();
  training.fill(0);
  Times times;
  training.executor().record(&times);
  training.step();
  CHECK(times.events[tokens].end <= times.events[read - 1].begin);
}

TEST_CASE("the gradient of the next piece comes while the host updates one") {
  On on;
  on.device = "far", on.offload = "optimizer = 'host'\n";
  Training training({"llama", 1, 1}, on);
  const eng::Segment& last = training.plan().program("train").segments.back();
  size_t updates = 0, beside = 0;  // updates; copies to the host that began before an update that precedes them ended
  // The thread of a queue may be slow, but not every time.
  for (int k = 0; k < 200 && !beside; ++k) {
    training.begin();
    training.fill(0);
    Times times;
    training.executor().record(&times);
    training.step();
    training.executor().record(nullptr);
    const size_t first = times.events.size() - last.actions.size();  // in list order, segment by segment
    for (size_t h = 0; h < last.actions.size(); ++h) {
      if (last.actions[h].queue != eng::Queue::host) continue;
      ++updates;
      for (size_t c = h + 1; c < last.actions.size(); ++c)
        beside +=
            last.actions[c].queue == eng::Queue::d2h && times.events[first + c].begin < times.events[first + h].end;
    }
  }
  CHECK(updates > 4);
  CHECK(beside > 0);
}

TEST_CASE("what the host computes is not kept waiting by a graph") {
  On on;
  on.device = "far", on.offload = "optimizer = 'host'\n";
  Training training({"llama", 1, 2}, on);
  training.begin();
  training.fill(0);
  const Counts before = counts();
  training.step();
  const Counts after = counts();
  CHECK(after.replayed - before.replayed == 2);  // the micro-batches
  CHECK(after.launched > before.launched);       // the update
}
