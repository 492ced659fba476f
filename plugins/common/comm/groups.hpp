// SPDX-License-Identifier: Apache-2.0
// The groups of a run as one rank sees them, and what the others say of where they are.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "../error.hpp"
#include "place.hpp"

namespace common {

// A communicator adds what its library has for it.
struct Group {
  eng_id id = 0;  // 0: the host's exchange
  std::vector<uint32_t> ranks;
  uint32_t self = 0;  // this rank's place among them
  bool member = false;
  Place place;
};

// One rank's message to another about its place. Its bytes are sent as they are.
struct Answer {
  uint32_t there = 0;  // 1: this is an answer
  uint32_t group = 0, what = 0, waiting = 0;
  uint64_t number = 0;
  double seconds = 0;  // that it has been waiting
};

// `G` is the communicator's Group. No function locks anything.
template <class G>
class Groups {
 public:
  const uint32_t rank, size;  // of this process among all
  G host;
  std::map<eng_id, G> all;  // without `host`; group 1 has all ranks. Changes in [setup] only
  // The last question of where the others are, and what came, by rank.
  uint32_t question = 0;
  std::vector<Answer> answers;

  Groups(uint32_t own, uint32_t ranks) : rank(own), size(ranks), answers(ranks) {
    std::vector<uint32_t> list(size);
    std::iota(list.begin(), list.end(), 0u);
    host = checked(0, list.data(), size), all[1] = checked(1, list.data(), size);
  }

  // A new group of these ranks, which the caller adds to `all` when it is complete. Throws Error.
  G checked(eng_id id, const uint32_t* ranks, uint32_t n) const {
    const std::string name = "group " + std::to_string(id);
    if (all.count(id)) throw Error{ENG_INVALID, name + " exists already"};
    G group;
    group.id = id;
    group.ranks.assign(ranks, ranks + n);
    for (uint32_t k = 0; k < n; ++k) {
      const std::string names = name + " names rank " + std::to_string(ranks[k]);
      if (ranks[k] >= size) throw Error{ENG_INVALID, names + " of " + std::to_string(size)};
      if (std::count(ranks, ranks + n, ranks[k]) != 1) throw Error{ENG_INVALID, names + " twice"};
      if (ranks[k] == rank) group.member = true, group.self = k;
    }
    return group;
  }

  // The group, of which this rank must be a member. Throws Error.
  G& own(eng_id id) {
    const auto it = all.find(id);
    if (it == all.end()) throw Error{ENG_INVALID, "there is no group " + std::to_string(id)};
    if (!it->second.member) throw Error{ENG_INVALID, "this rank is not a member of group " + std::to_string(id)};
    return it->second;
  }

  // A new question to the other members of the group: send(rank) asks one of them.
  template <class Send>
  void ask(const G& group, Send send) {
    ++question;
    std::fill(answers.begin(), answers.end(), Answer());
    for (const uint32_t other : group.ranks)
      if (other != rank) send(other);
  }

  bool answered(const G& group) const {
    return std::all_of(group.ranks.begin(), group.ranks.end(),
                       [&](uint32_t other) { return other == rank || answers[other].there; });
  }

  // This rank's place, for a rank that waits in group `asked`: there, or in another group if it waits in that.
  Answer answer(eng_id asked) const {
    const G* about = &host;
    if (const auto it = all.find(asked); it != all.end()) about = &it->second;
    if (!about->place.waiting) {
      if (host.place.waiting) about = &host;
      for (const auto& [id, group] : all)
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

  // "eng.all_gather number 417 of group 1 (all 4 ranks): waited 600.0 s; rank 1 has not answered; ...": by the answers,
  // the members that are not in the collective in which this rank waits. Where there are none: what `entered` says.
  std::string late_text(const G& group, double waited, const std::vector<std::string>& entered) const {
    const std::vector<std::string> others = elsewhere(group);
    return place_text(group.place.what, group.place.number, group.id) + " (" +
           (group.ranks.size() == size ? "all " : "") + std::to_string(group.ranks.size()) + " ranks): waited " +
           seconds_text(waited) + listed(others.empty() ? entered : others);
  }

 private:
  std::vector<std::string> elsewhere(const G& group) const {
    std::vector<std::string> said;
    for (const uint32_t other : group.ranks) {
      if (other == rank) continue;
      const Answer& a = answers[other];
      const What what = static_cast<What>(a.what);
      const std::string name = "rank " + std::to_string(other);
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
  static std::string listed(const std::vector<std::string>& said) {
    constexpr size_t most = 8;
    std::string text;
    for (size_t k = 0; k < said.size() && k < most; ++k) text += "; " + said[k];
    if (said.size() > most) text += "; and so on for " + std::to_string(said.size() - most) + " more";
    return text;
  }
};

}  // namespace common
