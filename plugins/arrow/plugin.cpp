// SPDX-License-Identifier: Apache-2.0
// The formats "parquet" and "arrow", read by Arrow's C++ library: that of the wheel pyarrow, which the run path of this
// file names.
#include "engine/plugin.h"

#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "rows.hpp"

// clang-format off
ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.arrow'
name = 'Arrow'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Formats of [data]: Parquet, Arrow'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'parquet'
summary = 'Files of Parquet: a column of texts, or rows for the sources chat and pairs'
begins = ['50415231', '50415245']

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'arrow'
summary = 'Files and streams of Arrow, such as Feather and the caches of the library datasets'
begins = ['4152524f57310000', 'ffffffff']
)toml")
// clang-format on

namespace arrow_format {
namespace {

// Sources of rows have not all of these options.
std::string option(const eng_options* options, const char* key, const char* otherwise) {
  const char* value = nullptr;
  return options->get_string(options, key, &value, nullptr) == ENG_OK && value ? value : otherwise;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, "opening a format", [&] {
    *self = new Rows::Asked{option(options, "field", "text"), option(options, "missing", "stop") == "skip"};
  });
}

void destroy(void* self) {
  delete static_cast<Rows::Asked*>(self);
}

template <auto read_file>
eng_status read(void* self, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                eng_error* error) {
  eng_status stopped = ENG_OK;
  const eng_status status = common::guarded(error, "reading by Arrow", [&] {
    try {
      Rows rows(*static_cast<const Rows::Asked*>(self), *out, *seen, error);
      const auto content = std::make_shared<Content>(*in, error);
      read_file(content, rows);
      rows.finish(content->first_part() == 0);
    } catch (const Stopped& by) {
      stopped = by.status;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {  // of Parquet's own parts
      throw Failure(ENG_DATA_LOSS, "is damaged, or cut short: copy the file again. Arrow says: " + printable(e.what()));
    }
  });
  return stopped != ENG_OK ? stopped : status;
}

constexpr eng_documents parquet_table = {sizeof(eng_documents), 0, create, destroy, read<read_parquet>},
                        arrow_table = {sizeof(eng_documents), 0, create, destroy, read<read_arrow>};

const char* description() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(kind, ENG_DOCUMENTS_KIND) != 0) return nullptr;
  return std::strcmp(name, "parquet") == 0 ? &parquet_table : std::strcmp(name, "arrow") == 0 ? &arrow_table : nullptr;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = description,
                           .start = start,
                           .stop = stop,
                           .get_interface = get_interface};

}  // namespace
}  // namespace arrow_format

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &arrow_format::plugin;
}
