// SPDX-License-Identifier: Apache-2.0
// The formats of the plugin arrow, by themselves and as the host of a data source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/documents.h"

namespace arrow_test {

inline const std::string golden = std::string(ENGINE_SOURCE_DIR) + "/tests/arrow/golden/";

std::string file(const std::string& name);  // the content of a golden

// The documents of a content, or why there are none.
struct Read {
  std::vector<std::string> texts;
  eng_status status = ENG_OK;
  std::string error;
  uint64_t left_out = 0;
  std::vector<std::pair<uint64_t, std::size_t>> parts = {};  // that begin, each with the number of texts before it
};

struct How {
  std::string field = "text";
  std::string missing = "stop";
  bool seeks = true;              // false: as from a compressed file
  std::size_t most = SIZE_MAX;    // documents after which the source wants no more
  std::size_t breaks = SIZE_MAX;  // bytes of the content after which the source fails
  uint64_t first_part = 0;
};

// By the format "parquet" or "arrow".
Read read(const std::string& format, std::string_view content, const How& how = {});
// By the one that claims the content; its status is ENG_NOT_FOUND if none does.
Read read(std::string_view content, const How& how = {});

// The host's extension that lets data sources read by both formats, with the field "text".
extern const eng_formats formats;

}  // namespace arrow_test
