// SPDX-License-Identifier: Apache-2.0
// Trains small models on a device, all ranks in one process, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/execute/executor.hpp"
#include "session/planning/setup.hpp"

namespace devices {

// Settings that fix the numbers.
struct Model {
  std::string name = "llama";  // llama, opt, mamba
  uint32_t ranks = 1;
  int64_t accumulate = 1;
  std::string more = {};  // sections
};

// Settings that must not change them.
struct On {
  std::string device = "cpu";     // cpu, far, cuda
  std::string strategy = "none";  // none, zero1, zero2, zero3, two_level
  bool overlap = true;
  bool graphs = true;
  int64_t delay = 0, seed = 1;    // of far
  int64_t held = -1, freed = -1;  // of far: bound actions; the first is held back until the second has run, or all can
  int64_t late = -1;              // does not run before the held one has begun, if that can be
  int64_t patience = 20;          // milliseconds until nothing more can
  bool on_queues = false;         // with far: collectives, too
  std::string uncapturable = {};  // of far: an op
  bool mortal = false;            // of far: an error ends it
  std::string offload = {};       // the keys of [offload]
};
std::string describe(const Model& model, const On& on);

eng::Registry& registry();
eng::Config config(const Model& model, const On& on, uint32_t rank = 0);

// Losses and norms of all steps, then every tensor as its ranks hold it.
using Result = std::vector<std::pair<std::string, std::vector<float>>>;
// "" if they are equal bit for bit, else the first value that is not.
std::string difference(const Result& a, const Result& b);

constexpr int steps = 3;

// Is given the plan of rank 0 before it is bound.
using Change = std::function<void(eng::Plan&)>;

class Training {
 public:
  Training(const Model& model, const On& on, const Change& change = {});
  ~Training();
  Result run();
  const eng::Plan& plan() const { return ranks_[0]->setup.plan; }
  eng::Executor& executor() { return *ranks_[0]->executor; }
  // Fills every rank's batch of a step where the host leaves it.
  void fill(int step);
  void begin();  // parameters, counters, the table
  void step();
  int again() const { return ranks_[0]->again; }  // steps whose early updates were made again

 private:
  struct Rank {
    explicit Rank(eng::Config own) : config(std::move(own)) {}
    eng::Config config;
    eng::Setup setup;
    std::unique_ptr<eng::Communicator> comm;
    std::unique_ptr<eng::Device> device;
    eng::Host host;
    std::unique_ptr<eng::Executor> executor;
    int again = 0;
  };
  void all(const std::function<void(Rank&)>& act);
  Model model_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The work of far in this process so far.
struct Counts {
  uint64_t launched, captured, replayed;  // actions put on queues; graphs made; graphs put on queues
};
Counts counts();

// The number by which far knows an action: that of its bind, which follows the plan.
int64_t number_of(const eng::Plan& plan, const std::string& program, size_t segment, size_t action);

}  // namespace devices
