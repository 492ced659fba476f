// SPDX-License-Identifier: Apache-2.0
#include "session/run/host_rate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "session/planning/estimate.hpp"
#include "session/planning/peak.hpp"
#include "session/ranks/room.hpp"

namespace eng {
namespace {

constexpr uint64_t least_measured = uint64_t{64} << 20;  // bytes
constexpr double longest = 0.3;                          // seconds

struct Moved {
  float *p, *m, *v;
  const float* g;
  uint64_t n;
};

void update(const Moved& part) {
  float *const p = part.p, *const m = part.m, *const v = part.v;
  const float* const g = part.g;
  for (uint64_t i = 0; i < part.n; ++i) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.95f * v[i] + 0.05f * (g[i] * g[i]);
    p[i] = p[i] - 1e-3f * (m[i] + v[i]);
  }
}

double two_digits(double x) {
  if (!(x > 0)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(x)) - 1);
  return std::round(x / unit) * unit;
}

}  // namespace

double measured_host_rate(uint64_t threads, uint64_t bytes) try {
  using Clock = std::chrono::steady_clock;
  constexpr int passes = 4;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto begin = Clock::now();
  threads = std::max<uint64_t>(threads, 1);
  const uint64_t each = bytes / (4 * sizeof(float)) / threads;
  if (each == 0) return 0;
  std::vector<std::unique_ptr<float[]>> memory(4 * threads);
  for (auto& part : memory) part.reset(new float[each]);
  const auto with = [&](auto work) {
    std::vector<std::jthread> all;  // which are waited for, also if the system makes no more
    for (uint64_t t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        auto* const at = &memory[4 * t];
        work(Moved{at[0].get(), at[1].get(), at[2].get(), at[3].get(), each}, at[3].get());
      });
  };
  with([](const Moved& part, float* gradient) {  // pages come to the thread that uses them
    std::fill_n(part.p, part.n, 1.0f), std::fill_n(part.m, part.n, 0.0f), std::fill_n(part.v, part.n, 0.0f);
    std::fill_n(gradient, part.n, 0.5f);
  });
  double least = HUGE_VAL;
  for (int k = 0; k < passes && (k == 0 || since(begin) < longest); ++k) {
    const auto start = Clock::now();
    with([](const Moved& part, float*) { update(part); });
    least = std::min(least, since(start));
  }
  return two_digits(28.0 * static_cast<double>(each) * threads / least);
} catch (const std::bad_alloc&) {
  return 0;
} catch (const std::system_error&) {  // no more threads
  return 0;
}

bool assumes_host_rate(const Setup& setup, const Config& config) {
  return setup.host_update && !setup.target.host_memory() && !setup.target.card &&
         !config.section("host").has("memory_bandwidth");
}

std::optional<double> host_rate_for(const Setup& setup, const Config& config) {
  if (!assumes_host_rate(setup, config)) return {};
  const uint64_t bytes = std::min(most_measured, arena_bytes(setup.plan).host);
  const uint64_t cores = room_here().cores;
  // A rank that is bound to some of the processors cannot measure for the others of its host.
  const bool bound = cores < static_cast<uint64_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 0L));
  if (bytes < least_measured || (bound && setup.plan.ranks.world.size > 1)) return {};
  const double rate = measured_host_rate(cores, bytes);
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

std::string host_rate_note(std::optional<double> measured) {
  const double assumed = reached.memory * assumed_host_memory;
  if (!measured || std::abs(*measured - assumed) <= assumed / 4) return "";
  return fmt::format(
      "this host's memory moves {:.3g} GB/s in updates, and the plan assumes {:.3g}: host.memory_bandwidth = "
      "\"{:.0f}MB\" plans with what was measured",
      *measured / 1e9, assumed / 1e9, *measured / 1e6);
}

}  // namespace eng
