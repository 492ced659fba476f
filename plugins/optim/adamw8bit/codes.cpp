// SPDX-License-Identifier: Apache-2.0
#include "make_codes.hpp"

namespace adamw8bit {
namespace {

constexpr float middle(float a, float b) {
  return static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2.0);
}

constexpr Codes m_made = make_codes(true, middle), v_made = make_codes(false, middle);

}  // namespace

const Codes m_codes = m_made, v_codes = v_made;

}  // namespace adamw8bit
