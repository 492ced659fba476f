// SPDX-License-Identifier: Apache-2.0
#include "session/job/part_place.hpp"

#include "core/base/error.hpp"
#include "session/json.hpp"
#include "session/run/record.hpp"

namespace eng {

namespace fs = std::filesystem;

namespace {
constexpr const char *parts_folder = "parts", *part_file = "part.json";
constexpr uint64_t most_bytes = 1 << 16;
}  // namespace

fs::path part_folder(const HeldFolder& analysis, uint32_t part) {
  const HeldFolder parts(analysis, parts_folder), one(parts, std::to_string(part));
  return analysis.path() / parts_folder / std::to_string(part);
}

std::optional<PartRecord> read_part(const fs::path& folder) {
  if (!fs::exists(folder / part_file)) return {};
  const Json all = Json::parse_or_null(read_text(folder / part_file, most_bytes, Exit::checkpoint));
  const Json &data = all.get("data_hash"), &model = all.get("model_hash"), &device = all.get("device_bytes");
  if (!data.is_string() || !model.is_string() || !device.is_unsigned())
    throw Error(Exit::checkpoint, (folder / part_file).string() + " is damaged",
                "remove " + folder.string() + ", to do this part again");
  return PartRecord{data.text(), model.text(), device.whole()};
}

void write_part(const fs::path& folder, const PartRecord& record) {
  const Json all = Json::ordered(
      {{"data_hash", record.data_hash}, {"model_hash", record.model_hash}, {"device_bytes", record.device_bytes}});
  write_atomic(folder / part_file, all.dump(2, true) + "\n");
}

void refuse_part(const fs::path& target) {
  const fs::path path = fs::absolute(target).lexically_normal(), folder = path.parent_path();
  if (folder.filename() != parts_folder || !is_analysis(folder.parent_path())) return;
  throw Error(Exit::usage, target.string() + " is a part of the analysis " + folder.parent_path().string(),
              "resume that one: engine analyse " + folder.parent_path().string());
}

}  // namespace eng
