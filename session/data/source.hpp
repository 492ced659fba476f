// SPDX-License-Identifier: Apache-2.0
// A data plugin in use: the samples of one source.
#pragma once

#include <memory>
#include <span>

#include "session/data/fields.hpp"

namespace eng {

class Source {
 public:
  // Opens the data. `fields`: of the batch, in its order; what the source does not have gets its neutral values.
  // Throws Error(Exit::data).
  Source(Registry& registry, const Config& config, const DataSource& of, int64_t vocabulary,
         const std::vector<Field>& fields);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  const DataSource& of() const { return of_; }
  const eng_data_info& info() const { return info_; }
  // Writes T values of each field of the batch; they are not checked. One caller at a time. Throws Error(Exit::data).
  void read(int32_t split, uint64_t position, std::span<void* const> values);

 private:
  DataSource of_;
  int64_t length_;
  void* self_ = nullptr;
  std::shared_ptr<void> object_;                       // what destroys it
  std::vector<std::size_t> own_;                       // the fields that it has, as indices of those of the batch
  std::vector<std::pair<std::size_t, Neutral>> rest_;  // what it does not have
  std::size_t segments_ = 0;                           // its segments, as an index; 0: it has none
  std::vector<void*> wanted_;                          // what it writes of the sample that is read
  eng_data_info info_{};
};

}  // namespace eng
