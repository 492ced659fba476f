// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/data_reference.hpp"

#include <unistd.h>

#include "session/clock.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"
#include "session/run/stored_reference.hpp"

namespace eng {

int reference_command(const Common& common, const std::string& target, const std::vector<std::string>& overrides) {
  auto [registry, config] = load_config(common, target, overrides);
  config.require("data");
  build_data(config, *registry, model_vocabulary(config, *registry), true);
  const Signals signals;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto begin = SteadyClock::now();
  auto drawn = begin;
  const auto plan = [&, &own = config, &plugins = *registry](Setup& setup, const Data& data) {
    print_notes(setup);
    check_evaluation_fits(own, plugins, setup);
    count_data(setup, data);
  };
  const auto progress = [&](uint64_t done, uint64_t all) {
    if (Signals::pending())
      throw Error(static_cast<Exit>(128 + Signals::pending()), "stopped; no log-probabilities were kept");
    if (!terminal || since(drawn) < 0.5) return;
    drawn = SteadyClock::now();
    const double past = since(begin), part = static_cast<double>(done) / static_cast<double>(all);
    print_err("\r\x1b[Kreference  {} of {} samples  left: {}", done, all, duration_text(past * (1 - part) / part));
  };
  const StoredWork work = compute_stored_reference(config, *registry, plan, progress);
  if (terminal) print_err("\r\x1b[K");
  print_out("{}: {} sequences, of {} samples of {} tokens; {}\n", stored_reference(config).string(), work.sequences,
            work.samples, config.section("train").integer("sequence_length"), duration_text(since(begin)));
  return 0;
}

}  // namespace eng
