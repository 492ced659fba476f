// SPDX-License-Identifier: Apache-2.0
// Reads CSV as RFC 4180 says it is.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using CsvTable = std::vector<std::vector<std::string>>;

// Throws std::runtime_error where the text is not of RFC 4180: a line ending other than CR LF, a bare quote, records of
// unequal length.
inline CsvTable read_csv(const std::string& text) {
  CsvTable out;
  for (size_t at = 0; at < text.size();) {
    std::vector<std::string> record;
    for (bool more = true; more;) {
      std::string field;
      if (text[at] == '"') {
        for (++at;; ++at) {
          if (at >= text.size()) throw std::runtime_error("a quote is not closed");
          if (text[at] == '"' && text.compare(at, 2, "\"\"") != 0) break;
          if (text[at] == '"') ++at;
          field += text[at];
        }
        ++at;
      } else {
        for (; at < text.size() && text[at] != ',' && text[at] != '\r'; ++at) {
          if (text[at] == '"' || text[at] == '\n') throw std::runtime_error("a bare quote or line feed");
          field += text[at];
        }
      }
      record.push_back(field);
      more = text.compare(at, 1, ",") == 0;
      if (!more && text.compare(at, 2, "\r\n") != 0) throw std::runtime_error("a record does not end in CR LF");
      at += more ? 1 : 2;
    }
    if (!out.empty() && record.size() != out[0].size()) throw std::runtime_error("records of unequal length");
    out.push_back(record);
  }
  return out;
}

// "name@2" for each field that differs: column and record.
inline std::vector<std::string> differences(const CsvTable& a, const CsvTable& b) {
  std::vector<std::string> out;
  if (a.size() != b.size()) return {"the number of records"};
  for (size_t r = 0; r < a.size(); ++r)
    for (size_t c = 0; c < a[0].size(); ++c)
      if (a[r][c] != b[r][c]) out.push_back(a[0][c] + "@" + std::to_string(r));
  return out;
}
