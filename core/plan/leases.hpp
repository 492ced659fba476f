// SPDX-License-Identifier: Apache-2.0
// Leases: temporary memory on the device for a state of a unit, within one budget.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

// The key of a lease.
struct Lease {
  int32_t role = 0;  // ENG_ROLE_*
  size_t unit = 0;
  auto operator<=>(const Lease&) const = default;
};

// Limits on how far the actions of one role run ahead, even if the budget has bytes left.
struct Pace {
  uint64_t bytes = UINT64_MAX;  // of this role
  size_t turns = SIZE_MAX;      // an acquisition waits for the users of everything released this many turns ago
};

// All leases of one segment. They end with it. The table decides which action waits for which, so that layout can reuse
// the memory; it places nothing.
class Leases {
 public:
  explicit Leases(Emitter& emitter) : emitter_(emitter) {}
  // Limits the bytes of all roles together. Released bytes count until an action waits for their users.
  void limit(uint64_t bytes) { limit_ = bytes; }
  void pace(int32_t role, const Pace& pace) { roles_[role].pace = pace; }
  // Ends a turn of this role.
  void turn(int32_t role) { ++roles_[role].turn; }
  // Makes a transient for a lease that is not held yet. If too few bytes are left, the next action waits for the users
  // of released leases, oldest first. Throws Error(Exit::bug) if the lease does not fit.
  View acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc);
  // Ends a lease: no later action uses it.
  void release(const Lease& lease);
  // The view, or an absent one.
  View find(const Lease& lease) const;
  // True if `bytes` more can be acquired without a release.
  bool fits(uint64_t bytes) const { return bytes <= limit_ && used_.held <= limit_ - bytes; }

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
  struct Role {
    Pace pace;
    Used used;
    size_t turn = 0;
  };
  void take(Released& from, uint64_t n);
  bool matters(const Released& released);
  Emitter& emitter_;
  uint64_t limit_ = UINT64_MAX;
  Used used_;
  std::deque<Released> left_;
  std::map<int32_t, Role> roles_;
  std::map<Lease, View> held_;
};

}  // namespace eng
