// SPDX-License-Identifier: Apache-2.0
#include "core/plan/leases.hpp"

namespace eng {

// The acquisition at hand takes over n bytes of a released lease.
void Leases::take(uint32_t place, Released& from, uint64_t n) {
  from.waits = true;
  from.bytes -= n;
  places_[place].used.released -= n;
  roles_[from.role].used[place].released -= n;
}

// A later acquisition may have to wait for its users.
bool Leases::matters(uint32_t place, const Released& released) {
  const Pace& pace = roles_[released.role].pace;
  const bool bounded = places_[place].limit != UINT64_MAX || pace.bytes != UINT64_MAX;
  return released.bytes && (bounded || (pace.turns != SIZE_MAX && !released.waited));
}

View Leases::acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc, uint32_t place) {
  Place& at = places_[place];
  Role& role = roles_[lease.role];
  const uint64_t n = bytes(desc);
  if (!fits(n, place)) throw Error(Exit::bug, name + ": the leases that are held leave too few bytes");
  // Every byte goes to one acquisition, and that one waits for its users: the next one may be on another queue.
  for (Released& r : at.left)
    if (r.role == lease.role) {
      if (const uint64_t some = std::min(r.bytes, role.used[place].missing(n, role.pace.bytes))) take(place, r, some);
      if (!r.waited && role.turn - r.turn >= role.pace.turns) r.waits = true;
    }
  for (Released& r : at.left)
    if (const uint64_t some = std::min(r.bytes, at.used.missing(n, at.limit))) take(place, r, some);
  for (auto r = at.left.begin(); r != at.left.end();) {
    if (std::exchange(r->waits, false)) emitter_.after_users(r->view), r->waited = true;
    r = matters(place, *r) ? r + 1 : at.left.erase(r);
  }
  at.used.held += n, role.used[place].held += n;
  const View view = emitter_.transient(name, line, desc, place);
  held_[lease] = {view, place};
  return view;
}

void Leases::release(const Lease& lease) {
  const auto [view, place] = held_.at(lease);
  Used &at = places_[place].used, &role = roles_[lease.role].used[place];
  const uint64_t n = bytes(view.desc);
  at.held -= n, at.released += n;
  role.held -= n, role.released += n;
  places_[place].left.push_back({view, n, lease.role, roles_[lease.role].turn});
  held_.erase(lease);
}

View Leases::find(const Lease& lease) const {
  const auto it = held_.find(lease);
  return it == held_.end() ? View{} : it->second.view;
}

}  // namespace eng
