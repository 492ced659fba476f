// SPDX-License-Identifier: Apache-2.0
#include "core/plan/leases.hpp"

namespace eng {

// The acquisition at hand takes over n bytes of a released lease.
void Leases::take(Released& from, uint64_t n) {
  from.waits = true;
  from.bytes -= n, used_.released -= n, roles_[from.role].used.released -= n;
}

// A later acquisition may have to wait for its users.
bool Leases::matters(const Released& released) {
  const Pace& pace = roles_[released.role].pace;
  const bool bounded = limit_ != UINT64_MAX || pace.bytes != UINT64_MAX;
  return released.bytes && (bounded || (pace.turns != SIZE_MAX && !released.waited));
}

View Leases::acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc) {
  Role& role = roles_[lease.role];
  const uint64_t n = bytes(desc);
  if (!fits(n)) throw Error(Exit::bug, name + ": the leases that are held leave too few bytes");
  // Every byte goes to one acquisition, and that one waits for its users: the next one may be on another queue.
  for (Released& r : left_)
    if (r.role == lease.role) {
      if (const uint64_t some = std::min(r.bytes, role.used.missing(n, role.pace.bytes))) take(r, some);
      if (!r.waited && role.turn - r.turn >= role.pace.turns) r.waits = true;
    }
  for (Released& r : left_)
    if (const uint64_t some = std::min(r.bytes, used_.missing(n, limit_))) take(r, some);
  for (auto r = left_.begin(); r != left_.end();) {
    if (std::exchange(r->waits, false)) emitter_.after_users(r->view), r->waited = true;
    r = matters(*r) ? r + 1 : left_.erase(r);
  }
  used_.held += n, role.used.held += n;
  return held_[lease] = emitter_.transient(name, line, desc);
}

void Leases::release(const Lease& lease) {
  const View view = held_.at(lease);
  Role& role = roles_[lease.role];
  const uint64_t n = bytes(view.desc);
  used_.held -= n, used_.released += n;
  role.used.held -= n, role.used.released += n;
  left_.push_back({view, n, lease.role, role.turn});
  held_.erase(lease);
}

View Leases::find(const Lease& lease) const {
  const auto it = held_.find(lease);
  return it == held_.end() ? View{} : it->second;
}

}  // namespace eng
