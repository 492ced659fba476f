// SPDX-License-Identifier: Apache-2.0
#include "core/train/loader.hpp"

#include "core/base/error.hpp"

namespace eng {

Data::Data(Registry& registry, const Config& config, int64_t vocabulary) {
  const Section& section = config.section("data");
  name_ = section.string("plugin");
  table_ = registry.table<eng_data>(ENG_DATA_KIND, name_);
  std::string base = config.base_dir().string();
  eng_data_request request{sizeof(eng_data_request),
                           0,
                           static_cast<uint64_t>(config.section("train").integer("seed")),
                           config.section("train").integer("sequence_length"),
                           vocabulary,
                           base.c_str()};
  Options options(section);
  Sink sink;
  sink.check(table_.create(options.get(), &request, &self_, sink.get()), Exit::data, "data plugin " + name_);
  info_.struct_size = sizeof(info_);
  sink.check(table_.describe(self_, &info_, sink.get()), Exit::data, "data plugin " + name_);
}

Data::~Data() {
  if (self_) table_.destroy(self_);
}

void Data::read(int32_t split, uint64_t position, int32_t* tokens, int32_t* labels) const {
  Sink sink;
  eng_status status = table_.read(self_, split, position, tokens, labels, sink.get());
  if (status != ENG_OK) sink.check(status, Exit::data, "data plugin " + name_ + ", sample " + std::to_string(position));
}

void fill(const Data& data, int32_t split, uint64_t position, int64_t rows, int64_t length, Batch& batch) {
  batch.tokens.resize(static_cast<size_t>(rows * length));
  batch.labels.resize(static_cast<size_t>(rows * length));
  for (int64_t r = 0; r < rows; ++r)
    data.read(split, position + static_cast<uint64_t>(r), batch.tokens.data() + r * length,
              batch.labels.data() + r * length);
  batch.valid = 0;
  for (int32_t label : batch.labels) batch.valid += label != ENG_IGNORE_LABEL;
}

Loader::Loader(const Data& data, int64_t rows, int64_t length, uint64_t position)
    : data_(data), rows_(rows), length_(length), position_(position) {
  for (Batch& b : batches_)
    b.tokens.resize(static_cast<size_t>(rows * length)), b.labels.resize(static_cast<size_t>(rows * length));
  wanted_ = 1;
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  stop_ = true;
  wanted_.fetch_add(1);
  wanted_.notify_all();
  thread_.join();
}

void Loader::work() {
  for (uint32_t k = 0;; ++k) {
    for (uint32_t now = wanted_.load(); now <= k; now = wanted_.load()) wanted_.wait(now);
    if (stop_) return;
    if (!failure_) {
      try {
        fill(data_, ENG_SPLIT_TRAIN, position_ + static_cast<uint64_t>(k) * static_cast<uint64_t>(rows_), rows_,
             length_, batches_[k % 2]);
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    ready_.store(k + 1);
    ready_.notify_all();
  }
}

const Batch& Loader::next() {
  uint32_t k = wanted_.load();
  for (uint32_t now = ready_.load(); now < k; now = ready_.load()) ready_.wait(now);
  if (failure_) std::rethrow_exception(failure_);
  wanted_.fetch_add(1);
  wanted_.notify_all();
  return batches_[(k - 1) % 2];
}

}  // namespace eng
