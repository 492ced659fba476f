// SPDX-License-Identifier: Apache-2.0
// Reads a file by its format, ours or that of another plugin.
#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "failure.hpp"
#include "notes.hpp"
#include "text_check.hpp"
#include "text_format.hpp"

namespace text_data {
namespace {

// The state behind the two tables that a format gets while it reads one file. An exception that is thrown here does not
// cross the format: it is kept, and thrown again when the format has returned.
class Exchange {
 public:
  Exchange(const InputFile& file, const Reading& reading, const TextFormat& format, const DocumentSink& sink,
           Seen& seen, const FileParts& parts, const eng_documents_seen& more)
      : file_(file),
        reading_(reading),
        format_(format),
        sink_(sink),
        seen_(seen),
        parts_(parts),
        more_(more),
        content_(file, format.packed) {
    std::string mark(format.mark, '\0');
    content_.read(mark.data(), mark.size());
  }

  eng_documents_in in() {
    const bool seeks = format_.packed == Packed::no;
    return {sizeof(eng_documents_in),
            0,
            this,
            file_.path().c_str(),
            seeks ? length() : 0,
            [](const eng_documents_in* self, void* out, uint64_t capacity, uint64_t* got, eng_error* error) {
              return behind(self->data, error,
                            [&](Exchange& me) { *got = me.content_.read(static_cast<char*>(out), capacity); });
            },
            seeks ? seek : nullptr,
            parts_.first};
  }
  eng_documents_out out() {
    return {
        sizeof(eng_documents_out), 0, this,
        [](const eng_documents_out* self, const char* text, uint64_t size, uint32_t flags, eng_error* error) {
          return behind(self->data, error, [&](Exchange& me) { me.put({text, size}, (flags & ENG_TEXT_MORE) != 0); });
        },
        [](const eng_documents_out* self, uint64_t part, eng_error* error) {
          return behind(self->data, error, [&](Exchange& me) { me.begin_part(part); });
        }};
  }
  // Once the format has returned.
  void finish(eng_status status, const std::string& text) {
    if (failure_) std::rethrow_exception(failure_);
    if (status != ENG_OK && format_.is_ours()) throw Failure(status, text);
    if (status != ENG_OK) refuse(status, text.empty() ? "failed with status " + std::to_string(status) : text);
    if (open_) refuse(ENG_INTERNAL, "it returned inside of document " + std::to_string(documents_));
    file_.check_same();
  }

 private:
  // Runs what a format asks for.
  template <class Body>
  static eng_status behind(void* data, eng_error* error, const Body& body) noexcept {
    auto& me = *static_cast<Exchange*>(data);
    if (!me.failure_) {
      try {
        body(me);
        return ENG_OK;
      } catch (...) {
        me.failure_ = std::current_exception();
      }
    }
    return report(error, ENG_UNAVAILABLE, "the source reads no further");
  }
  static eng_status seek(const eng_documents_in* self, uint64_t offset, eng_error* error) {
    auto& me = *static_cast<Exchange*>(self->data);
    if (offset > me.length()) return report(error, ENG_OUT_OF_RANGE, "the file ends before the byte that is wanted");
    me.content_.seek(me.format_.mark + offset);
    return ENG_OK;
  }
  uint64_t length() const { return file_.size() - std::min(format_.mark, file_.size()); }

  void put(std::string_view text, bool more) {
    if (!open_ && !text.empty()) {
      open_ = true;
      ++documents_;
      if (!format_.is_ours()) check_.emplace(file_.path(), true);
      sink_.begin();
    }
    if (!text.empty()) {
      if (check_) check_->feed(text);
      sink_.text(text);
    }
    if (more || !open_) return;
    if (check_) judge();
    open_ = false;
    sink_.end();
  }
  void begin_part(uint64_t part) {
    if (open_ || part <= part_)
      refuse(ENG_INTERNAL, "it begins part " + std::to_string(part) +
                               (open_ ? " inside of a document" : " after part " + std::to_string(part_)));
    part_ = part;
    if (parts_.at && part > parts_.first) parts_.at(part, {seen_.skipped + more_.left_out, seen_.wrong + more_.wrong});
  }
  // The document of another plugin's format that ends here.
  void judge() {
    check_->finish();
    seen_.wrong += check_->wrong();
    if (check_->wrong() == check_->nul() || reading_.replace) return;
    refuse(ENG_INVALID, "document " + std::to_string(documents_) +
                            " of the file is not text in UTF-8: " + std::to_string(check_->wrong() - check_->nul()) +
                            " bytes are not; with [data] errors = \"replace\" they are read as U+FFFD");
  }
  [[noreturn]] void refuse(eng_status status, const std::string& text) const {
    throw Failure(status, "[data] " + file_.path() + ", read by the format " + format_.name + ": " + text);
  }

  const InputFile& file_;
  const Reading& reading_;
  const TextFormat& format_;
  const DocumentSink& sink_;
  Seen& seen_;
  const FileParts& parts_;
  const eng_documents_seen& more_;  // of the format, as it goes on
  uint64_t part_ = 0;
  ContentReader content_;
  std::exception_ptr failure_;
  std::optional<TextCheck> check_;  // of another plugin's texts; ours are checked by their formats
  uint64_t documents_ = 0;
  bool open_ = false;  // inside of a document
};

// The options of a format whose documents are to be whole rows: those of [data], with the field "".
class RowOptions {
 public:
  explicit RowOptions(const eng_options& inner) : inner_(inner) {}
  RowOptions(const RowOptions&) = delete;
  RowOptions& operator=(const RowOptions&) = delete;
  const eng_options* table() const { return &table_; }

 private:
  static const eng_options* of(const eng_options* self) { return &static_cast<const RowOptions*>(self->data)->inner_; }

  const eng_options& inner_;
  const eng_options table_ = {sizeof(eng_options),
                              0,
                              this,
                              [](const eng_options* me, const char* key, int32_t* out, eng_error* e) {
                                return of(me)->get_bool(of(me), key, out, e);
                              },
                              [](const eng_options* me, const char* key, int64_t* out, eng_error* e) {
                                return of(me)->get_int(of(me), key, out, e);
                              },
                              [](const eng_options* me, const char* key, double* out, eng_error* e) {
                                return of(me)->get_float(of(me), key, out, e);
                              },
                              [](const eng_options* me, const char* key, const char** out, eng_error* e) -> eng_status {
                                if (std::strcmp(key, "field") != 0) return of(me)->get_string(of(me), key, out, e);
                                *out = "";
                                return ENG_OK;
                              },
                              [](const eng_options* me, const char* key, uint32_t* out, eng_error* e) {
                                return of(me)->get_count(of(me), key, out, e);
                              },
                              [](const eng_options* me, const char* key, uint32_t index, double* out, eng_error* e) {
                                return of(me)->get_float_at(of(me), key, index, out, e);
                              },
                              [](const eng_options* me, const char* key, uint32_t index, const char** out,
                                 eng_error* e) { return of(me)->get_string_at(of(me), key, index, out, e); },
                              [](const eng_options* me, const char* key) { return of(me)->is_set(of(me), key); }};
};

const eng_formats* formats_of_host() {
  if (!host || !host->get_extension) return nullptr;
  return static_cast<const eng_formats*>(host->get_extension(host, ENG_FORMATS_EXTENSION));
}

}  // namespace

void each_document(const InputFile& file, const Reading& reading, const TextFormat& format, const DocumentSink& sink,
                   Seen& seen, const FileParts& parts) {
  const eng_documents& table = format.is_ours() ? *own_format(format.name) : *format.by_plugin.table;
  struct Object {
    ~Object() {
      if (made) destroy(self);
    }
    void (*destroy)(void*);
    void* self = nullptr;
    bool made = false;
  } object{table.destroy};
  eng_documents_seen more{};
  more.struct_size = sizeof(more);
  Exchange exchange(file, reading, format, sink, seen, parts, more);
  const eng_documents_in in = exchange.in();
  const eng_documents_out out = exchange.out();
  Said said;
  const eng_options* options = format.is_ours() ? reading.options : format.by_plugin.options;
  std::optional<RowOptions> of_rows;
  if (reading.rows && options) options = of_rows.emplace(*options).table();
  eng_status status = table.create(options, &object.self, &said.sink);
  if (status == ENG_OK) {
    object.made = true;
    status = table.read(object.self, &in, &out, &more, &said.sink);
  }
  exchange.finish(status, said.text);
  seen.skipped += more.left_out;
  seen.wrong += more.wrong;
}

eng_format plugin_format(const std::string& name) {
  eng_format found{};
  found.struct_size = sizeof(found);
  Said said;
  const eng_formats* all = formats_of_host();
  const eng_status status = all ? all->find(all, name.c_str(), &found, &said.sink) : ENG_NOT_FOUND;
  if (status != ENG_OK)
    throw Failure(status, "[data] format = \"" + name + "\": " +
                              (all ? said.text : "there are auto, text, jsonl, json, csv and bytes, and no plugin's"));
  return found;
}

eng_format claiming_format(const std::string& path, std::string_view head) {
  eng_format found{};
  found.struct_size = sizeof(found);
  Said said;
  const eng_formats* all = formats_of_host();
  if (!all) return {};
  const eng_status status = all->recognise(all, path.c_str(), head.data(), head.size(), &found, &said.sink);
  if (status == ENG_NOT_FOUND || status == ENG_PRECONDITION) return {};
  if (status != ENG_OK) throw Failure(status, "[data] " + path + ": " + said.text);
  return found;
}

}  // namespace text_data
