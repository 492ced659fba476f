// SPDX-License-Identifier: Apache-2.0
#include "session/report/pace.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "session/file.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

constexpr uint64_t bytes_read = 256 << 10;
constexpr size_t rates_read = 50;

}  // namespace

RunPace pace_of(const std::filesystem::path& run) noexcept try {
  const FileReader file(run / "metrics.jsonl", Exit::disk);
  const uint64_t bytes = std::min(file.size(), bytes_read);
  std::string text(bytes, '\0');
  file.read(text.data(), file.size() - bytes, bytes);
  RunPace pace;
  std::vector<double> rates;
  size_t end = text.rfind('\n');  // what follows is not complete
  while (end != std::string::npos && end > 0 && rates.size() < rates_read) {
    const size_t before = text.rfind('\n', end - 1);
    if (before == std::string::npos && bytes < file.size()) break;  // the line begins further up
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    const Json line = Json::parse_or_null(text.substr(begin, end - begin));
    end = before;
    if (!line.get("step").is_integer() || !line.get("attempt").is_integer()) break;
    if (pace.attempt == 0) pace.step = line.at("step").integer(), pace.attempt = line.at("attempt").integer();
    if (line.at("attempt").integer() != pace.attempt) break;
    rates.push_back(line.at("tokens_per_second").number());
  }
  if (rates.size() > 1) rates.pop_back();  // the oldest, which may be the first of the attempt
  pace.steps = static_cast<int64_t>(rates.size());
  if (rates.empty()) return pace;
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
  pace.tokens_per_second = rates[rates.size() / 2];
  return pace;
} catch (...) {
  return {};
}

}  // namespace eng
