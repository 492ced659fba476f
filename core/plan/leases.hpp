// SPDX-License-Identifier: Apache-2.0
// Leases: temporary memory for a piece of a state, within one budget per place.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

// The key of a lease.
struct Lease {
  int32_t role = 0;  // ENG_ROLE_*
  size_t unit = 0;
  uint32_t piece = whole_unit;
  static constexpr uint32_t whole_unit = UINT32_MAX;
  auto operator<=>(const Lease&) const = default;
};

// Limits on how far the actions of one role run ahead, even if the place has bytes left.
struct Pace {
  uint64_t bytes = UINT64_MAX;  // of this role
  size_t turns = SIZE_MAX;      // an acquisition waits for the users of everything released this many turns ago
};

// All leases of one segment. They end with it. The table decides which action waits for which, so that layout can reuse
// the memory; it places nothing.
class Leases {
 public:
  explicit Leases(Emitter& emitter) : emitter_(emitter) {}
  // Limits the bytes at a place, of all roles together. Released bytes count until an action waits for their users.
  void limit(uint64_t bytes, uint32_t place = 0) { places_[place].limit = bytes; }
  void pace(int32_t role, const Pace& pace) { roles_[role].pace = pace; }
  // Ends a turn of this role.
  void turn(int32_t role) { ++roles_[role].turn; }
  // Makes a transient for a lease that is not held yet. If too few bytes are left, the next action waits for the users
  // of released leases, oldest first. Throws Error(Exit::bug) if the lease does not fit.
  View acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc, uint32_t place = 0);
  // Ends a lease: no later action uses it.
  void release(const Lease& lease);
  // The view, or an absent one.
  View find(const Lease& lease) const;
  // True if `bytes` more can be acquired without a release.
  bool fits(uint64_t bytes, uint32_t place = 0) {
    const Place& at = places_[place];
    return bytes <= at.limit && at.used.held <= at.limit - bytes;
  }

 private:
  struct Used {
    uint64_t held = 0, released = 0;  // bytes
    // The released bytes that must be taken over to hold `n` more.
    uint64_t missing(uint64_t n, uint64_t limit) const {
      return limit == UINT64_MAX || held + released + n <= limit ? 0 : held + released + n - limit;
    }
  };
  struct Released {
    View view;
    uint64_t bytes;  // that no acquisition has taken over
    int32_t role;
    size_t turn;
    bool waits = false;   // the acquisition at hand waits for its users
    bool waited = false;  // one did
  };
  struct Place {
    uint64_t limit = UINT64_MAX;
    Used used;
    std::deque<Released> left;
  };
  struct Role {
    Pace pace;
    std::map<uint32_t, Used> used;  // per place
    size_t turn = 0;
  };
  struct Held {
    View view;
    uint32_t place;
  };
  void take(uint32_t place, Released& from, uint64_t n);
  bool matters(uint32_t place, const Released& released);
  Emitter& emitter_;
  std::map<uint32_t, Place> places_;
  std::map<int32_t, Role> roles_;
  std::map<Lease, Held> held_;
};

}  // namespace eng
