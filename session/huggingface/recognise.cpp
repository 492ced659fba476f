// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/recognise.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "core/base/text.hpp"
#include "session/file.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

using namespace std::string_view_literals;

constexpr size_t first_bytes = 512;

constexpr const char* pull = "fetch the file itself: in the folder, `git lfs install` and then `git lfs pull`";
constexpr const char* download =
    "download the file again. On huggingface.co the address of a file has /resolve/ where that of a page has /blob/; "
    "`hf download` needs no address, and a token for models with a licence to accept";
constexpr const char* other_weights = "take the model in safetensors or as pytorch_model.bin";

// The kind of a file that has `bytes` at `at`. No file of weights begins like this.
struct Signature {
  size_t at;
  std::string_view bytes;
  const char *what, *help;
};

constexpr Signature signatures[] = {
    {0, "version https://git-lfs.github.com/spec/"sv, "is a Git LFS pointer, not the file that it stands for", pull},
    {0, "version https://hawser.github.com/spec/"sv, "is a Git LFS pointer, not the file that it stands for", pull},
    {0, "/annex/objects/"sv, "is a git-annex pointer, not the file that it stands for",
     "fetch it: `git annex get FILE`"},
    {0, "GGUF"sv, "is a GGUF file, as llama.cpp reads it", other_weights},
    {0, "lmgg"sv, "is a GGML file, as older versions of llama.cpp read it", other_weights},
    {0, "tjgg"sv, "is a GGML file, as older versions of llama.cpp read it", other_weights},
    {0, "\x1f\x8b"sv, "is compressed by gzip", "unpack it: `gunzip`"},
    {0, "BZh"sv, "is compressed by bzip2", "unpack it: `bunzip2`"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "is compressed by xz", "unpack it: `unxz`"},
    {0, "\x28\xb5\x2f\xfd"sv, "is compressed by zstd", "unpack it: `zstd -d`"},
    {0, "\x04\x22\x4d\x18"sv, "is compressed by lz4", "unpack it: `lz4 -d`"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "is a 7z archive", "unpack it"},
    {0, "Rar!\x1a\x07"sv, "is a RAR archive", "unpack it"},
    {257, "ustar"sv, "is a tar archive", "unpack it: `tar xf`"},
    {0, "\x93NUMPY"sv, "is a NumPy array", other_weights},
    {0, "\x89HDF\r\n\x1a\n"sv, "is an HDF5 file, as TensorFlow and Keras write it", other_weights},
    {0, "PAR1"sv, "is a Parquet file", ""},
    {0, "ARROW1"sv, "is an Arrow file", ""},
    {0, "SQLite format 3\0"sv, "is a SQLite database", ""},
    {0, "%PDF"sv, "is a PDF", download},
    {0, "\x89PNG"sv, "is a picture", download},
    {0,
     "\x7f"
     "ELF"sv,
     "is a program", ""},
    {0, "\xff\xfe"sv, "is text in UTF-16", "save it as UTF-8"},
    {0, "\xfe\xff"sv, "is text in UTF-16", "save it as UTF-8"},
    {0, "PK\5\6"sv, "is an empty zip archive", download},
};

bool has(std::string_view first, size_t at, std::string_view bytes) {
  return first.size() >= at + bytes.size() && first.substr(at, bytes.size()) == bytes;
}

// The text of a page, or of a server's error, after blanks and in lower case.
std::string head_of(std::string_view first) {
  if (first.starts_with("\xef\xbb\xbf")) first.remove_prefix(3);
  while (!first.empty() && std::isspace(static_cast<unsigned char>(first[0]))) first.remove_prefix(1);
  std::string out(first.substr(0, 16));
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return out;
}

bool is_page(std::string_view first) {
  const std::string head = head_of(first);
  return head.starts_with("<!doctype") || head.starts_with("<html") || head.starts_with("<head") ||
         head.starts_with("<?xml") || head.starts_with("<!--") || head.starts_with("<error");
}

// Characters and blanks alone; the last one may be cut.
bool is_text(std::string_view first) {
  return std::all_of(first.begin(), first.end(), [](unsigned char c) { return c >= 32 ? c != 127 : std::isspace(c); });
}

std::string beginning(std::string_view first) {
  return "\"" + printable(std::string(first.substr(0, std::min<size_t>(first.find('\n'), 60)))) + "\"";
}

bool is_safetensors(std::string_view first) {  // a length of less than 4 GiB, and a JSON object
  return first.size() > 8 && first.substr(4, 4) == "\0\0\0\0"sv && first[8] == '{';
}

std::optional<Mistaken> of_weights(std::string_view first, ModelFile wanted) {
  const bool zip = has(first, 0, "PK\3\4");
  const bool pickle = first.size() > 1 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
  if (wanted == ModelFile::torch && is_safetensors(first))
    return Mistaken{"is a safetensors file", "rename it to model.safetensors"};
  if (wanted == ModelFile::safetensors && zip && first.substr(0, 256).find("/data.pkl") != first.npos)
    return Mistaken{"is a file of torch.save, not one of safetensors", "rename it to pytorch_model.bin"};
  if (wanted == ModelFile::safetensors && zip) return Mistaken{"is a zip archive", "unpack it"};
  if (wanted == ModelFile::safetensors && pickle)
    return Mistaken{"is a Python pickle, as torch.save wrote it before version 1.6", "rename it to pytorch_model.bin"};
  // If a zip archive or a pickle is wanted, its reader says what is wrong.
  if (!zip && !pickle && is_text(first)) return Mistaken{"is a text that begins " + beginning(first), download};
  return std::nullopt;
}

// The first entry of `folder`, in the order of names, that `fits`. Looks at a few thousand.
template <class Fits>
std::string find_entry(const fs::path& folder, Fits fits) {
  std::error_code none;
  std::string found;
  size_t seen = 0;
  for (fs::directory_iterator it(folder, none), end; !none && it != end && ++seen < 4096; it.increment(none)) {
    const std::string name = it->path().filename();
    if ((found.empty() || name < found) && fits(name, *it)) found = name;
  }
  return found;
}

// Names that tell where a folder comes from.
struct Trace {
  const char *begin, *end;
  const char *what, *help;
};

constexpr const char* zero_to_fp32 =
    "join its parts: `python3 zero_to_fp32.py . .` in the folder that has zero_to_fp32.py and `latest`, and name that "
    "folder";
constexpr const char* merge_fsdp = "join its parts: `accelerate merge-weights FOLDER OUT`, and name OUT";

constexpr Trace traces[] = {
    {"", "_model_states.pt", "is a checkpoint of DeepSpeed", zero_to_fp32},
    {"", "_optim_states.pt", "is a checkpoint of DeepSpeed", zero_to_fp32},
    {"global_step", "", "is a checkpoint of DeepSpeed", zero_to_fp32},
    {"", ".distcp", "is a sharded checkpoint of FSDP (torch.distributed.checkpoint)", merge_fsdp},
    {"pytorch_model_fsdp_", "", "is a sharded checkpoint of FSDP (torch.distributed.checkpoint)", merge_fsdp},
    {"pytorch_model_fsdp.bin", "", "has its weights in pytorch_model_fsdp.bin", "rename it to pytorch_model.bin"},
    {"mp_rank_", "", "is a checkpoint of Megatron", "convert it to Hugging Face's format with the tools of Megatron"},
    {"consolidated.", ".pth", "has the weights in Meta's own format",
     "convert them with transformers' convert_llama_weights_to_hf.py"},
    {"consolidated.", ".safetensors", "has the weights in Mistral's own format",
     "download the files of Hugging Face's format instead"},
    {"", ".gguf", "has the weights as GGUF, for llama.cpp", other_weights},
    {"tf_model", ".h5", "has weights of TensorFlow", other_weights},
    {"flax_model", ".msgpack", "has weights of Flax", other_weights},
    {"model-00001-of-", ".safetensors", "has parts of its weights, but no model.safetensors.index.json",
     "download that file, too"},
    {"pytorch_model-00001-of-", ".bin", "has parts of its weights, but no pytorch_model.bin.index.json",
     "download that file, too"},
    {"optimizer", ".pt", "has the state of an optimizer, but no weights", "name the folder that has model.safetensors"},
    {"optimizer", ".bin", "has the state of an optimizer, but no weights",
     "name the folder that has model.safetensors"},
    {"", ".ckpt", "has a checkpoint of Lightning",
     "take its weights out: `torch.save(torch.load(FILE)[\"state_dict\"], \"pytorch_model.bin\")`"},
};

std::optional<Mistaken> trace_of(const fs::path& folder) {
  for (const Trace& t : traces) {
    const std::string_view begin = t.begin, end = t.end;
    const std::string name = find_entry(folder, [&](const std::string& n, const auto&) {
      return n.size() >= begin.size() + end.size() && n.starts_with(begin) && n.ends_with(end);
    });
    if (!name.empty()) return Mistaken{fmt::format("{} (`{}`)", t.what, printable(name, 80)), t.help};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Mistaken> recognise(std::string_view first, uint64_t file_bytes, ModelFile wanted) {
  if (file_bytes == 0) return Mistaken{"is empty", download};
  if (wanted == ModelFile::safetensors && is_safetensors(first)) return std::nullopt;
  for (const Signature& s : signatures)
    if (has(first, s.at, s.bytes)) return Mistaken{s.what, s.help};
  if (is_page(first))
    return Mistaken{"is a web page, or the answer of a server, that begins " + beginning(first), download};
  if (first.size() >= std::min<uint64_t>(file_bytes, 64) &&
      std::all_of(first.begin(), first.end(), [](char c) { return c == 0; }))
    return Mistaken{"begins with zeros, as a file whose download was not finished", download};
  if (wanted == ModelFile::safetensors || wanted == ModelFile::torch) return of_weights(first, wanted);
  if (has(first, 0, "PK\3\4")) return Mistaken{"is a zip archive", "unpack it"};
  if (is_safetensors(first)) return Mistaken{"is a safetensors file", ""};
  if (wanted == ModelFile::json && first.starts_with("\xef\xbb\xbf"))
    return Mistaken{"begins with a byte order mark (EF BB BF)", "save it as UTF-8 without one"};
  return std::nullopt;
}

static std::optional<Mistaken> recognise_file(const fs::path& file, ModelFile wanted) {
  std::error_code none;
  const uint64_t size = fs::file_size(file, none);
  std::ifstream in(file, std::ios::binary);
  std::string first(first_bytes, '\0');
  if (none || !in || (in.read(first.data(), first_bytes), in.bad())) return std::nullopt;
  first.resize(size_t(in.gcount()));
  return recognise(first, size, wanted);
}

void refuse_mistaken(const fs::path& file, ModelFile wanted, Exit exit) {
  std::error_code none;
  if (fs::is_symlink(file, none) && !fs::exists(file, none))
    throw Error(exit,
                fmt::format("{} is a symbolic link to {}, which is not there", file.string(),
                            printable(fs::read_symlink(file, none))),
                "copy folders of a Hugging Face cache with their links resolved: cp -rL, rsync -L");
  if (fs::is_directory(file, none)) throw Error(exit, file.string() + " is a folder; a file is needed here");
  if (!fs::is_regular_file(file, none)) return;
  if (const auto found = recognise_file(file, wanted))
    throw Error(exit, file.string() + " " + found->what, found->help);
}

void refuse_mistaken_tokenizer(const fs::path& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    if (fs::exists(path, none))
      refuse_mistaken(path, path.extension() == ".json" ? ModelFile::json : ModelFile::tokenizer, Exit::data);
    return;
  }
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"})
    refuse_mistaken(path / name, ModelFile::json, Exit::data);
  refuse_mistaken(path / "tokenizer.model", ModelFile::tokenizer, Exit::data);
  if (fs::exists(path / "merges.txt", none) && fs::file_size(path / "merges.txt", none) > 0)  // there may be none
    refuse_mistaken(path / "merges.txt", ModelFile::tokenizer, Exit::data);
}

std::optional<Mistaken> recognise_adapter(const fs::path& folder) {
  std::error_code none;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"})
    if (fs::exists(folder / name, none))
      return Mistaken{
          fmt::format("is a LoRA adapter (`{}`), not a model", name),
          "name its base model here, and the adapter in model.adapter, with the transform lora; or merge it with peft, "
          "`AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(OUT)`, and name OUT"};
  return std::nullopt;
}

std::optional<Mistaken> recognise_folder(const fs::path& folder) {
  std::error_code none;
  if (fs::is_regular_file(folder, none)) {
    const auto file = recognise_file(folder, ModelFile::tokenizer);
    return Mistaken{file ? file->what : "is a file",
                    file && !file->help.empty() ? file->help : "name the folder in which it lies"};
  }
  if (const auto adapter = recognise_adapter(folder)) return adapter;
  if (const auto found = trace_of(folder)) return found;
  // A folder above the one that is meant: the checkpoints of a trainer, or a repository in a cache.
  const std::string inner = find_entry(folder, [&](const std::string&, const auto& entry) {
    return entry.is_directory(none) && fs::exists(entry.path() / "config.json", none);
  });
  if (!inner.empty())
    return Mistaken{fmt::format("has no model itself, but its folder `{}` does", printable(inner, 80)),
                    "name that folder: " + (folder / inner).string()};
  const fs::path cache = folder / "snapshots";
  const std::string snapshot = find_entry(
      cache, [&](const std::string&, const auto& entry) { return fs::exists(entry.path() / "config.json", none); });
  if (!snapshot.empty())
    return Mistaken{"is a repository in a Hugging Face cache", "name its snapshot: " + (cache / snapshot).string()};
  return std::nullopt;
}

}  // namespace eng
