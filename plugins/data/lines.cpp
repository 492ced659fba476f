// SPDX-License-Identifier: Apache-2.0
#include "lines.hpp"

#include <string>

#include "failure.hpp"

namespace text_data {

void each_line(const InputFile& file, Packed packed, uint64_t mark,
               const std::function<void(std::string_view line, uint64_t number)>& take) {
  constexpr std::size_t longest = std::size_t{64} << 20;
  ContentReader content(file, packed);
  uint64_t number = 0;
  const auto put = [&](std::string_view line) {
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) take(line, number);
  };
  std::string rest, piece(piece_bytes, '\0');
  for (std::size_t got = piece.size(); got == piece.size();) {
    got = content.read(piece.data(), piece.size());
    std::string_view more(piece.data(), got);
    more.remove_prefix(std::min<std::size_t>(mark, more.size()));
    mark = 0;
    rest += more;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1)
      put(std::string_view(rest).substr(begin, end - begin));
    rest.erase(0, begin);
    if (rest.size() > longest)
      throw Failure(ENG_INVALID,
                    file.path() + ":" + std::to_string(number + 1) + ": the line is longer than 64 MiB, the limit");
  }
  put(rest);
  file.check_same();
}

}  // namespace text_data
