// SPDX-License-Identifier: Apache-2.0
// The place of a rank in the sequence of a group's collectives, and its text for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace common {

using Clock = std::chrono::steady_clock;

// The calls that a rank can wait for.
enum class What : uint32_t { exchange, all_gather, all_to_all, broadcast, reduce_scatter, all_reduce };
inline const char* name_of(What what) {
  static const char* const names[] = {"exchange",      "eng.all_gather",     "eng.all_to_all",
                                      "eng.broadcast", "eng.reduce_scatter", "eng.all_reduce"};
  return static_cast<size_t>(what) < std::size(names) ? names[static_cast<size_t>(what)] : "?";
}

// The position of a rank in the sequence of a group's collectives.
struct Place {
  What what = What::exchange;
  bool waiting = false;
  uint64_t number = 0;  // from 1; 0: nothing yet
  Clock::time_point since{};

  void enter(What next) { *this = {next, true, number + 1, Clock::now()}; }
};

inline double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}
inline std::string seconds_text(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", s);
  return text;
}
// "eng.all_gather number 417 of group 1"
inline std::string place_text(What what, uint64_t number, uint32_t group) {
  std::string text = std::string(name_of(what)) + " number " + std::to_string(number);
  if (what != What::exchange) text += " of group " + std::to_string(group);
  return text;
}

}  // namespace common
