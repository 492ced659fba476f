// SPDX-License-Identifier: Apache-2.0
// The description and the entry point of this plugin.
#include "engine/plugin.h"

#include <cstring>

#include "host_threads.hpp"
#include "notes.hpp"
#include "tables.hpp"
#include "text_format.hpp"

// The options for held-out data and for packing, which both sources have. (A raw string of several lines cannot stand
// in a directive.)
#define SHARED_OPTIONS                                                                                                 \
  "[provides.options.validation]\n"                                                                                    \
  "type = 'float'\n"                                                                                                   \
  "default = 0.05\n"                                                                                                   \
  "min = 0.0\n"                                                                                                        \
  "max = 1.0\n"                                                                                                        \
  "help = \"\"\"Share of the windows held out of training, 0.5 at most, in up to 16 stretches spread evenly over the " \
  "data; it does "                                                                                                     \
  "not depend on the seed. 0: none. 1: all files, every token once, and nothing to train on: for engine eval. With "   \
  "validation_paths, nothing is held out of paths unless this is set.\"\"\"\n"                                         \
  "\n"                                                                                                                 \
  "[provides.options.validation_paths]\n"                                                                              \
  "type = 'strings'\n"                                                                                                 \
  "default = []\n"                                                                                                     \
  "help = \"\"\"Files or patterns, as in paths, that are held out of training: every token of them is evaluated "      \
  "once. A file that "                                                                                                 \
  "paths names as well is not trained on.\"\"\"\n"                                                                     \
  "\n"                                                                                                                 \
  "[provides.options.pack]\n"                                                                                          \
  "type = 'bool'\n"                                                                                                    \
  "default = false\n"                                                                                                  \
  "help = \"\"\"Put whole documents into samples, side by side: none sees another one, and each counts its positions " \
  "from 0. A document that is "                                                                                        \
  "longer than sequence_length is cut. validation then holds whole documents out. For models that read "               \
  "segments.\"\"\"\n"                                                                                                  \
  "\n"

ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.data'
name = 'data'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Text, JSON Lines and files of tokens as training data; tokenizers'

[[provides]]
kind = 'eng.data/1'
name = 'text'
summary = 'Text files, given by paths or patterns; any tokenizer, shuffled windows, a held-out part'

[provides.options.paths]
type = 'strings'
required = true
resume = 'note'
help = """Files or patterns, relative to the configuration file: * and ? match within a name, ** any folders, hidden \
names only where the dot is written; or a folder of save_to_disk of the library datasets. Sorted by path, each file once. A \
file is text in UTF-8, JSON Lines or an array of JSON with one document per row, or a table (*.csv, *.tsv). Each may be \
compressed by gzip or zstd. What a file is, its first bytes say, whatever its name; what is none of these is refused."""

[provides.options.format]
type = 'string'
default = 'auto'
choices = ['auto', 'text', 'jsonl', 'json', 'csv', 'bytes']
names = 'eng.documents/1'
help = """What the files are. auto: what a format of a plugin claims; else JSON Lines where each line is an object, json where the file is an array of objects, csv by the \
names *.csv and *.tsv, else text; other JSON, web pages and XML are refused, because as text they would be trained on with their braces and tags. text: each file is one text, \
those too. jsonl: each is JSON Lines. json: each is one array of objects. csv: each is a table with a header, its cells separated by commas, or by tabs in *.tsv. bytes: the bytes of each file as they are, whatever it is; for the tokenizer bytes. Another word: the format of a plugin, whose \
options are then keys of this section."""

[provides.options.errors]
type = 'string'
default = 'stop'
choices = ['stop', 'replace']
help = """What to do with bytes that are not UTF-8. stop: in JSON Lines any is an error that names the line (so is one half \
of a surrogate pair); in text more than one in 1000 is, in any MiB, NUL included. replace: they are read as U+FFFD (by the \
tokenizer bytes, in text, as they are)."""

[provides.options.missing]
type = 'string'
default = 'stop'
choices = ['stop', 'skip']
help = """What to do with a row of JSON whose text is null or missing. stop: an error that names the line. skip: it is \
left out; how many were is printed."""

[provides.options.field]
type = 'string'
default = 'text'
help = 'The field of a row of JSON, or the column of a table, that holds the text. With dots it is inside others: data.text is text of the object data'

[provides.options.tokenizer]
type = 'string'
default = 'bytes'
help = """bytes (ids 0 to 255 are the bytes of the text), or a path: of a tokenizer.json, of a tokenizer.model, of a \
*.tiktoken, of a tekken.json, or of a folder that holds one, such as a model's from Hugging Face. Relative to the configuration file"""

[provides.options.separator]
type = 'string'
default = "\n"
help = 'Text between two documents (a document is a file, or a line of JSON Lines) if no eot is put there; may be empty'

[provides.options.eot]
type = 'bool'
default = true
help = "Put the tokenizer's end-of-text token after each document; the tokenizer bytes has none"

[provides.options.special_tokens]
type = 'bool'
default = false
help = 'Encode each document with the tokens (bos, eos) that the tokenizer puts around a text'

[provides.options.cache]
type = 'string'
resume = 'free'
default = '.engine-cache'
help = 'Folder for files of tokens, relative to the configuration file; the tokenizer bytes needs none'

[provides.options.memory]
type = 'bytes'
resume = 'free'
default = '256MiB'
min = 0
help = """The most text that the tokenizer bytes keeps in memory: that of JSON Lines, of compressed files once they are decompressed, and of files up to 1 MiB. Larger plain files stay on disk and do not count. More is an error. Each rank keeps its own"""

)toml" SHARED_OPTIONS R"toml([[provides]]
kind = 'eng.data/1'
name = 'tokens'
summary = "Files of token ids: nanoGPT's, llm.c's, Megatron's, and those of engine data build"

[provides.options.paths]
type = 'strings'
required = true
resume = 'note'
help = """Files or patterns as for text: *.tokens of ours, *.bin of nanoGPT, llm.c and NeMo, *.bin or *.idx of Megatron, *.npy \
of NumPy. Which of them a file is, its content says, and an .idx beside a .bin."""

[provides.options.dtype]
type = 'string'
default = 'auto'
choices = ['auto', 'uint8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64']
help = """The type of the ids in files without a header (nanoGPT's and others), little-endian. auto: for *.bin, uint16, or a \
wider type where zeros between the ids prove it. Another value: for files of any name. Where a header says another type, it \
is an error."""

[provides.options.tokenizer]
type = 'string'
help = "What the ids mean, for engine generate and engine data inspect; training does not need it. Values as for the source text"

[provides.options.eot]
type = 'int'
default = -1
min = -1
help = """With pack: the id of the token between two documents, such as 50256 (GPT-2). Files of nanoGPT need it, or tokenizer; \
in those of llm.c it is known, and the engine's and Megatron's have an index. -1: not given"""

)toml" SHARED_OPTIONS R"toml([[provides]]
kind = 'eng.data/1'
name = 'pairs'
group = 2
weighted_mean = true
summary = 'Pairs of answers, of which the first is preferred, from JSON Lines; for the loss preference'

[provides.options.paths]
type = 'strings'
required = true
resume = 'note'
help = """Files or patterns as for text, with rows of any form that chat reads. Each row is an object with the texts \
prompt, chosen and rejected; other fields are ignored. Samples 2k and 2k + 1 are the answers of a pair."""

[provides.options.tokenizer]
type = 'string'
default = 'bytes'
help = 'Values as for the source text'

[provides.options.validation]
type = 'float'
default = 0.05
min = 0.0
max = 1.0
help = 'Share of the pairs held out of training, 0.5 at most, spread evenly. 0: none. 1: all, for engine eval'

[provides.options.eot]
type = 'bool'
default = true
help = "Put the tokenizer's end-of-text token after each answer, as a label; the tokenizer bytes has none"

[provides.options.unpaired]
type = 'bool'
default = false
help = """Each line has one answer: the texts prompt and completion, and label: true if it is good. For the loss preference \
with kind = "kto"."""

[provides.options.weights]
type = 'bool'
default = false
help = """Read weight, or loss_weight, of a row: 0 or a number from 1e-9 to 1e9. The loss is then the sum of the weighted losses of \
pairs, or of single answers, divided by the sum of their weights, over the whole step; rewards and accuracy count each pair once. \
false: a weight does not count, and how many rows have one is printed."""

[provides.options.too_long]
type = 'string'
default = 'stop'
choices = ['stop', 'cut', 'skip']
help = """What to do with a pair that is longer than a sample. stop: an error that names the line. cut: the answer loses its \
end. skip: the pair is left out. How many were cut or left out is printed; with cut, a pair whose prompt fills the sample is \
left out, too."""

[[provides]]
kind = 'eng.data/1'
name = 'chat'
weighted_mean = true
summary = 'Conversations, of which the answers train: written by a chat template, with masks; from JSON Lines'

[provides.options.paths]
type = 'strings'
required = true
resume = 'note'
help = """Files or patterns as for text: JSON Lines, an array of JSON or a table, also compressed by gzip or zstd, or files of a plugin's format. A row has messages (role, content, \
tool_calls) and perhaps tools; or ShareGPT's conversations; or instruction, input and output; or prompt and completion."""

[provides.options.format]
type = 'string'
default = 'auto'
choices = ['auto', 'jsonl', 'json', 'csv']
names = 'eng.documents/1'
help = """What the files are. auto: what a format of a plugin claims, else JSON Lines, an array of objects (json), or a table (csv) by its name \
*.csv or *.tsv. Another word: the format of a plugin; each of its documents is then a row, written as JSON."""

[provides.options.field]
type = 'string'
default = 'messages'
help = 'The field with the list of messages; with dots it is inside others: data.messages. A row without it may have one of the other forms'

[provides.options.errors]
type = 'string'
default = 'stop'
choices = ['stop', 'replace']
help = 'What to do with bytes that are not UTF-8. stop: an error that names the line. replace: they are read as U+FFFD'

[provides.options.missing]
type = 'string'
default = 'stop'
choices = ['stop', 'skip']
help = 'What to do with a row that has no messages, or null. stop: an error that names the line. skip: it is left out; how many were is printed'

[provides.options.tokenizer]
type = 'string'
default = 'bytes'
help = 'Values as for the source text; most often the folder of the model'

[provides.options.chat_template]
type = 'string'
default = ''
help = """A file with the chat template (Jinja), or a tokenizer_config.json. Empty: that of the folder of the tokenizer, in \
chat_template.jinja, chat_template.json or tokenizer_config.json"""

[provides.options.date]
type = 'string'
default = ''
help = 'The day that the template writes where it asks for the date of today, such as 2024-07-26. Empty: such a template is an error'

[provides.options.train_on]
type = 'string'
default = 'assistant'
choices = ['assistant', 'last', 'all']
help = """The tokens that train. assistant: those of all answers, with the token that ends each. last: those of the last answer. all: \
all tokens. A message with weight = 0 or train = false does not train (with all, it does)."""

[provides.options.weights]
type = 'bool'
default = false
help = """Read weights: weight of a message, 0 or a number from 1e-9 to 1e9, times weight or loss_weight of its row. The loss is then \
the sum of the weighted losses of all tokens that train, divided by the sum of their weights, over the whole step. false: the \
weight of a message is 0 or 1, that of a row does not count, and how many have one is printed."""

[provides.options.on_empty]
type = 'string'
default = 'stop'
choices = ['stop', 'skip']
help = 'What to do with a row that trains no token. stop: an error that names the line. skip: it is left out; how many were is printed'

[provides.options.too_long]
type = 'string'
default = 'stop'
choices = ['stop', 'cut', 'skip']
help = """What to do with a conversation that is longer than a sample. stop: an error that names the line. cut: it loses its end. skip: it \
is left out. How many were left out, or lost a part of an answer, is printed."""

[provides.options.validation]
type = 'float'
default = 0.05
min = 0.0
max = 1.0
help = """Share of the conversations held out of training, by their tokens, 0.5 at most, spread evenly. 0: none. 1: all, for engine eval. \
With validation_paths, nothing is held out of paths unless this is set."""

[provides.options.validation_paths]
type = 'strings'
default = []
help = 'Files or patterns, as in paths, that are held out of training. A file that paths names as well is not trained on'

[provides.options.pack]
type = 'bool'
default = false
help = """Put several whole conversations into a sample, side by side: none sees another one, and each counts its positions from 0. For \
models that read segments. Without it, a sample is one conversation and padding."""

[provides.options.cache]
type = 'string'
resume = 'free'
default = '.engine-cache'
help = 'Folder for files of tokens, relative to the configuration file'

[[provides]]
kind = ')toml" ENG_CHAT_DRAFT R"toml('
name = 'jinja'
summary = 'Conversations as token ids, by the chat template of a model'

[[provides]]
kind = 'eng.tokenizer/1'
name = 'auto'
summary = 'The one of the others that fits the path'

[[provides]]
kind = 'eng.tokenizer/1'
name = 'bytes'
summary = 'Ids 0 to 255 are the bytes of the text'

[[provides]]
kind = 'eng.tokenizer/1'
name = 'huggingface'
summary = 'Byte-level BPE from a tokenizer.json, or from vocab.json and merges.txt'

[[provides]]
kind = 'eng.tokenizer/1'
name = 'sentencepiece'
summary = 'tokenizer.model, read by the sentencepiece library'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'text'
summary = 'Each file is one document'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'jsonl'
summary = 'JSON Lines: a field of each line is a document'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'json'
summary = 'One array of JSON: a field of each object in it is a document'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'csv'
summary = 'A table with a header, by RFC 4180: a cell of each row is a document'

[[provides]]
kind = ')toml" ENG_DOCUMENTS_DRAFT R"toml('
name = 'bytes'
summary = 'The bytes of each file, whatever they are, are one document'
)toml")

namespace {

const char* description() {
  return eng_description;
}
eng_status start(const eng_host* host, eng_error*) {
  text_data::host = host;
  text_data::host_threads = static_cast<const eng_threads*>(host->get_extension(host, ENG_THREADS_EXTENSION));
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(kind, ENG_TOKENIZER_KIND) == 0) return text_data::tokenizer_table(name);
  if (std::strcmp(kind, ENG_DOCUMENTS_KIND) == 0) return text_data::own_format(name);
  if (std::strcmp(kind, ENG_CHAT_KIND) == 0)
    return std::strcmp(name, "jinja") == 0 ? &text_data::chat_kind_table : nullptr;
  if (std::strcmp(kind, ENG_DATA_KIND) != 0) return nullptr;
  if (std::strcmp(name, "text") == 0) return &text_data::text_table;
  if (std::strcmp(name, "tokens") == 0) return &text_data::tokens_table;
  if (std::strcmp(name, "pairs") == 0) return &text_data::pairs_table;
  if (std::strcmp(name, "chat") == 0) return &text_data::chat_table;
  return nullptr;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = description,
                           .start = start,
                           .stop = stop,
                           .get_interface = get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
