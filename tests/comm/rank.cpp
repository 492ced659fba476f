// SPDX-License-Identifier: Apache-2.0
// comm-rank PLUGIN_DIR SCENARIO: what one rank does.
#include "rank.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "session/ranks/ranks.hpp"

namespace rank {
std::string plugin_dir;
}

namespace {

using namespace rank;

void mine(int) {}

bool has_much(const std::string& scenario) {
  return scenario == "large" || scenario == "largest";
}

bool is_well(const std::string& scenario) {
  return scenario == "right" || scenario == "pieces" || has_much(scenario);
}

// For how long a rank, or its bytes, may stay away.
double timeout_of(const std::string& scenario) {
  if (scenario == "missing") return 5;
  // One message here is 2047 MiB, and what moves within one is not seen. A busy machine takes minutes for it.
  if (scenario == "largest") return 900;
  return scenario == "late" || scenario == "elsewhere" || scenario == "executor_late" ? deadline : far_away;
}

// Most bytes of one message.
int64_t message_bytes_of(const std::string& scenario) {
  if (scenario == "pieces") return 100;
  return scenario == "largest" ? int64_t{2047} << 20 : int64_t{64} << 20;
}

// Nothing of the process is changed by joining: the handlers of crashes would hide them.
void joining_is_quiet(double timeout, int64_t message_bytes, const std::string& scenario) {
  struct sigaction before[32], after;
  signal(SIGTERM, mine);
  for (int s = 1; s < 32; ++s) sigaction(s, nullptr, &before[s]);
  const auto said = eng::Announced::read([](const char* name) -> const char* { return getenv(name); });
  eng::Communicator comm(registry(), subject.options(timeout, message_bytes),
                         {said.rank, said.size, said.local_rank.value_or(0), 1},
                         ENG_WORLD_RANKS | (said.local_rank ? ENG_WORLD_LOCAL : 0));
  for (int s = 1; s < 32; ++s) {
    sigaction(s, nullptr, &after);
    if (after.sa_handler != before[s].sa_handler) throw std::runtime_error(fmt::format("signal {} changed", s));
  }
  EXPECT(comm.world().local_size == comm.world().size);
  EXPECT(comm.world().local_rank == comm.world().rank);
  if (scenario == "right") collectives(comm, true);
  if (scenario == "right" && !subject.device.empty()) executor(comm);
  if (scenario == "pieces") collectives(comm, false);
  if (has_much(scenario)) large(comm, scenario == "large");
  if (scenario == "late") late(comm);
  if (scenario == "elsewhere") elsewhere(comm);
  if (scenario == "aborts") aborts(comm);
  if (scenario == "leaves") leaves(comm);
  if (scenario == "killed") killed(comm);
  if (scenario == "vanishes") vanishes(comm);
  if (scenario == "executor_late") executor_late(comm);
  if (is_well(scenario)) return;
  fmt::print("rank {} is right\n", comm.world().rank);
  std::fflush(stdout);
  throw eng::Error(eng::Exit::communication, "as it should");
}

}  // namespace

int main(int, char** argv) {
  plugin_dir = argv[1];
  const std::string scenario = argv[2];
  try {
    const auto said = eng::Announced::read([](const char* name) -> const char* { return getenv(name); });
    if (scenario == "missing" && said.rank == 1) std::this_thread::sleep_for(std::chrono::minutes(10));
    joining_is_quiet(timeout_of(scenario), message_bytes_of(scenario), scenario);
    return 0;
  } catch (const eng::Error& e) {
    std::this_thread::sleep_for(std::chrono::seconds(3));  // the first that leaves takes the others with it
    fmt::print(stderr, "error {}: {}\n", static_cast<int>(e.exit()), e.what());
    return static_cast<int>(e.exit());
  } catch (const std::exception& e) {
    fmt::print(stderr, "wrong: {}\n", e.what());
    return 1;
  }
}
