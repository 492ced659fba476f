// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.hpp"

namespace eng {

Sink::Sink() {
  error_.struct_size = sizeof(error_);
  error_.data = this;
  error_.set = [](eng_error* self, eng_status code, const char* text, uint64_t length) {
    self->code = code;
    static_cast<Sink*>(self->data)->text_.assign(text ? text : "", text ? length : 0);
  };
}

void Sink::check(eng_status status, Exit exit, const std::string& where) const {
  if (status == ENG_OK) return;
  std::string text = text_.empty() ? "failed with status " + std::to_string(status) + " and no text" : text_;
  throw Error(exit, where + ": " + text);
}

eng_status report(eng_error* sink, eng_status status, const std::string& text) {
  if (sink && sink->set) sink->set(sink, status, text.data(), text.size());
  return status;
}

}  // namespace eng
