// SPDX-License-Identifier: Apache-2.0
// The values of one update in the arena in which it computes: themselves, or copies of them.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

// First the values are brought, in any order; then the update is emitted; then `drop`; last `give_back`, which an
// update that changes nothing does not need.
class Brought {
 public:
  // Borrows all but `arena`. Copies have the memory of the piece at hand of `slots`.
  Brought(Plan& plan, Emitter& emitter, Slots& slots, uint32_t arena)
      : plan_(plan), emit_(emitter), slots_(slots), arena_(arena) {}
  uint32_t arena() const { return arena_; }
  // True if the update can use a value where that lies.
  bool reaches(const View& view) const { return plan_.in_tier(view) == (arena_ != 0) && !plan_.in_storage(view); }
  // A value that the update only reads; absent for an absent one.
  View read(const View& view) {
    if (!view.buffer || reaches(view)) return view;
    const View copy = room("here ", view);
    emit_.copy(view, copy);
    return copy;
  }
  // A value that the update reads and changes.
  View change(const View& view) {
    const View here = read(view);
    if (here.buffer != view.buffer) back_.emplace_back(here, view);
    return here;
  }
  // Memory for a value that the update makes anew.
  View write(const View& view) { return reaches(view) ? view : back_.emplace_back(room("new ", view), view).first; }
  // Removes what `write` returned, if that is a copy: the update has not written it.
  void drop(const View& unwritten) {
    if (std::erase_if(back_, [&](const auto& one) { return one.first.buffer == unwritten.buffer; }))
      plan_.buffer(unwritten.buffer).bytes = 0;
  }
  // A value, if there is one, that what `change` or `write` returned is copied to as well.
  void also(const View& here, const View& to) { back_.emplace_back(here, to); }
  // Copies the new values to where they live; with `later`, adds these copies there instead.
  void give_back(std::vector<std::pair<View, View>>* later = nullptr) && {
    for (const auto& [copy, home] : back_) later ? void(later->emplace_back(copy, home)) : emit_.copy(copy, home);
  }

 private:
  View room(const char* what, const View& view) {
    return slots_.take(what + plan_.buffer(view.buffer).name, Line::update, view.desc, arena_);
  }
  Plan& plan_;
  Emitter& emit_;
  Slots& slots_;
  const uint32_t arena_;
  std::vector<std::pair<View, View>> back_;  // a copy, and where it goes
};

}  // namespace eng
