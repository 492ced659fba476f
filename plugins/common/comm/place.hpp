// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, where each rank is in the sequence of their collectives, and how that is told to people.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "../error.hpp"

namespace common {

using Clock = std::chrono::steady_clock;

// What a rank can wait for.
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
};

// A communicator adds what its library has for it.
struct Group {
  eng_id id = 0;  // 0: the host's exchange
  std::vector<uint32_t> ranks;
  uint32_t self = 0;  // this rank's place among them
  bool member = false;
  Place place;
};

// What one rank tells another of its place. Its bytes are sent as they are.
struct Answer {
  uint32_t there = 0;  // 1: this is an answer
  uint32_t group = 0, what = 0, waiting = 0;
  uint64_t number = 0;
  double seconds = 0;  // that it has been waiting
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

// Group `id` of these ranks, of `size` in all, for rank `own`. Throws Error.
template <class G>
G new_group(const std::map<eng_id, G>& known, eng_id id, const uint32_t* ranks, uint32_t n, uint32_t own,
            uint32_t size) {
  const std::string name = "group " + std::to_string(id);
  if (known.count(id)) throw Error{ENG_INVALID, name + " exists already"};
  G group;
  group.id = id;
  group.ranks.assign(ranks, ranks + n);
  for (uint32_t k = 0; k < n; ++k) {
    const std::string names = name + " names rank " + std::to_string(ranks[k]);
    if (ranks[k] >= size) throw Error{ENG_INVALID, names + " of " + std::to_string(size)};
    if (std::count(ranks, ranks + n, ranks[k]) != 1) throw Error{ENG_INVALID, names + " twice"};
    if (ranks[k] == own) group.member = true, group.self = k;
  }
  return group;
}

// The group, of which this rank must be a member. Throws Error.
template <class G>
G& own_group(std::map<eng_id, G>& groups, eng_id id) {
  const auto it = groups.find(id);
  if (it == groups.end()) throw Error{ENG_INVALID, "there is no group " + std::to_string(id)};
  if (!it->second.member) throw Error{ENG_INVALID, "this rank is not a member of group " + std::to_string(id)};
  return it->second;
}

// Where this rank is, for one that waits in group `asked`: there, or in another group if it waits in that.
template <class G>
Answer answer_about(eng_id asked, const G& host, const std::map<eng_id, G>& groups) {
  const G* about = &host;
  if (const auto it = groups.find(asked); it != groups.end()) about = &it->second;
  if (!about->place.waiting) {
    if (host.place.waiting) about = &host;
    for (const auto& [id, group] : groups)
      if (group.place.waiting) about = &group;
  }
  const Place& place = about->place;
  return {1,
          about->id,
          static_cast<uint32_t>(place.what),
          place.waiting,
          place.number,
          place.waiting ? seconds_since(place.since) : 0};
}

// "eng.all_gather number 417 of group 1 (all 4 ranks): waited 600.0 s"
inline std::string waited_text(const Group& group, double waited, size_t all_ranks) {
  return place_text(group.place.what, group.place.number, group.id) + " (" +
         (group.ranks.size() == all_ranks ? "all " : "") + std::to_string(group.ranks.size()) + " ranks): waited " +
         seconds_text(waited);
}

// What those members of the group do that are not in the collective in which rank `own` waits. `answers` are by rank.
inline std::vector<std::string> elsewhere(const Group& group, uint32_t own, const std::vector<Answer>& answers) {
  std::vector<std::string> said;
  for (const uint32_t rank : group.ranks) {
    if (rank == own) continue;
    const Answer& a = answers[rank];
    const What what = static_cast<What>(a.what);
    const std::string name = "rank " + std::to_string(rank);
    if (!a.there)
      said.push_back(name + " has not answered");
    else if (a.group == group.id && a.waiting && a.number == group.place.number && what == group.place.what)
      continue;
    else if (a.waiting)
      said.push_back(name + " has been waiting in " + place_text(what, a.number, a.group) + " for " +
                     seconds_text(a.seconds));
    else if (a.number)
      said.push_back(name + " is not waiting; it was last in " + place_text(what, a.number, a.group));
    else
      said.push_back(name + " is not waiting; it has not entered a collective of this group yet");
  }
  return said;
}

// "; a; b", of at most eight.
inline std::string listed(const std::vector<std::string>& said) {
  constexpr size_t most = 8;
  std::string text;
  for (size_t k = 0; k < said.size() && k < most; ++k) text += "; " + said[k];
  if (said.size() > most) text += "; and so on for " + std::to_string(said.size() - most) + " more";
  return text;
}

// Of this thread, and of those that it starts: signals are for the host's threads.
inline void leave_signals_to_host() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace common
