// SPDX-License-Identifier: Apache-2.0
// Families of hybrids: each is a reader of its options, in a file of its own.
#pragma once

#include "model.hpp"

namespace hybrid {

Config read_bamba(const model::Reader& in);
Config read_falcon_h1(const model::Reader& in);
Config read_granite(const model::Reader& in);
Config read_jamba(const model::Reader& in);
Config read_nemotron(const model::Reader& in);

struct Bamba : Model {
  static constexpr const char* name = "bamba";
  Bamba(const eng_options* options, eng_error* error) : Model(read_bamba({options, error})) {}
};

struct FalconH1 : Model {
  static constexpr const char* name = "falcon_h1";
  FalconH1(const eng_options* options, eng_error* error) : Model(read_falcon_h1({options, error})) {}
};

struct GraniteMoeHybrid : Model {
  static constexpr const char* name = "granitemoehybrid";
  GraniteMoeHybrid(const eng_options* options, eng_error* error) : Model(read_granite({options, error})) {}
};

struct Jamba : Model {
  static constexpr const char* name = "jamba";
  Jamba(const eng_options* options, eng_error* error) : Model(read_jamba({options, error})) {}
};

struct NemotronH : Model {
  static constexpr const char* name = "nemotron_h";
  NemotronH(const eng_options* options, eng_error* error) : Model(read_nemotron({options, error})) {}
};

}  // namespace hybrid
