// SPDX-License-Identifier: Apache-2.0
// A planted fault: the tables of the optimizer adamw8bit with which every moment is rounded down.
#include <make_codes.hpp>

namespace adamw8bit {
namespace {

constexpr float upper(float, float b) {
  return b;
}

constexpr Codes m_made = make_codes(true, upper), v_made = make_codes(false, upper);

}  // namespace

const Codes m_codes = m_made, v_codes = v_made;

}  // namespace adamw8bit
