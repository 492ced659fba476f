/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/documents.h - kind "eng.documents/1": a format, which reads documents from files.
 *
 * A document is a text. The format finds the texts in the bytes of a file and does nothing else: a data source tokenises
 * them, packs them, cuts them into windows and keeps the tokens. The source `text` reads every file by a format; `text`,
 * `jsonl` and `bytes` are its own. A plugin adds another:
 *
 *   [[provides]]
 *   kind = 'eng.documents/1-draft2'
 *   name = 'records'
 *   begins = ['5245434f52445331']     the first bytes of its files, in hexadecimal, at most 64 bytes each
 *   endings = ['.rec']                how their names end, in any letter case
 *   [provides.options.KEY]            as in engine/plugin.h
 *
 * A user selects a format by `[data] format = "NAME"`; its options are then keys of [data]. With `format = "auto"` a file
 * has the format if its content begins with one of `begins` and its name ends in one of `endings`. A list that is absent
 * says nothing; with neither, the format must be named. Two formats that both fit are an error. What no plugin claims is
 * recognised by the source itself.
 *
 * Files that are compressed by gzip or zstd are read as what they hold. A name then counts without .gz, .gzip, .zst or
 * .zstd.
 *
 * Tokens are kept in files and used again. They are made anew when the text files, the options of the format, or the
 * plugin's file change. Options with resume = 'free' do not count, so they must not change a text.
 *
 * The second half of this header is for data sources that read by formats of other plugins.
 */
#ifndef ENGINE_DOCUMENTS_H_
#define ENGINE_DOCUMENTS_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DOCUMENTS_KIND "eng.documents/1"
#define ENG_DOCUMENTS_DRAFT "eng.documents/1-draft2" /* for the description: see engine/plugin.h */

#define ENG_TEXT_MORE 1u /* a flag of eng_documents_out.put: the document goes on in the next call */

/* The content of one file, decompressed, as a stream of bytes.
 *   Owner: source.  Valid: during eng_documents.read.  since 1.0 */
typedef struct eng_documents_in {
  uint32_t struct_size;
  uint32_t reserved;
  void *data;
  const char *path; /* absolute */
  uint64_t size;    /* of the content, in bytes; 0 if the file is compressed, which does not tell it */
  /* Copies the next bytes to `out` and writes their number to *got: `capacity`, or fewer at the end of the content; 0
   * after it. The first call begins at the first byte.
   * A failure has a text already: eng_documents.read returns the status and sets no text.
   *   Call: [setup & inside eng_documents.read], from the thread of that call  since 1.0 */
  eng_status (*read)(const struct eng_documents_in *, void *out, uint64_t capacity, uint64_t *got, eng_error *);
  /* Lets the next `read` begin at byte `offset`, at most `size`. NULL: the file is compressed and can only be read from
   * its beginning to its end. A format that needs other places then returns ENG_UNSUPPORTED, with the advice to
   * decompress the file. ENG_OUT_OF_RANGE: beyond the end.
   *   Call: [setup & inside eng_documents.read], from the thread of that call  since 1.0 */
  eng_status (*seek)(const struct eng_documents_in *, uint64_t offset, eng_error *);
  /* The source has the documents before this part of the file already, from a call that was interrupted: those from the
   * part on are put, and no others. 0: all of them. It is a number that eng_documents_out.part was given, of the same
   * content and options, so a format that names no parts only sees 0.  since 1.0 */
  uint64_t first_part;
} eng_documents_in;

/* Takes the documents of one file, in their order.
 *   Owner: source.  Valid: during eng_documents.read.  since 1.0 */
typedef struct eng_documents_out {
  uint32_t struct_size;
  uint32_t reserved;
  void *data;
  /* Takes `size` bytes of UTF-8, which it copies; 0 bytes may be NULL. A call without ENG_TEXT_MORE ends the document. A
   * long document is best given in pieces, with ENG_TEXT_MORE in all calls but its last. A piece may end inside a
   * character. A document without any byte is left out.
   * The source checks the texts: where one is not UTF-8, it is refused or read with U+FFFD, as the user chose.
   * If this fails, the source wants no more: eng_documents.read returns the status at once and sets no text.
   *   Call: [setup & inside eng_documents.read], from the thread of that call  since 1.0 */
  eng_status (*put)(const struct eng_documents_out *, const char *text, uint64_t size, uint32_t flags, eng_error *);
  /* Says that the next document begins part `part` of the file, such as a row group: an interrupted build may go on there,
   * by eng_documents_in.first_part. Numbers are above 0, and above those before. A format whose files have no parts does
   * not call it. If this fails, eng_documents.read returns the status at once and sets no text.
   *   Call: [setup & inside eng_documents.read], between documents, from the thread of that call  since 1.0 */
  eng_status (*part)(const struct eng_documents_out *, uint64_t part, eng_error *);
} eng_documents_out;

/* Counts of what a file held besides texts, for messages to users. The source zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_documents_seen {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t left_out; /* rows without a document, where the options say that such rows are left out */
  uint64_t wrong;    /* bytes of documents that the format itself found not to be text */
} eng_documents_seen;

typedef struct eng_documents {
  uint32_t struct_size;
  uint32_t minor;
  /* The options are those of [data]: the format's own, and those of the source. Of the source's, a format may read
   * `field` (the column that holds the text), `errors` ("stop" or "replace") and `missing` ("stop" or "skip"), of which
   * docs/data.md says what they mean. A source need not have them all. It must not read others. An empty `field`: the
   * source wants rows, and each document is a whole row, as an object of JSON.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]; no `read` is running  since 1.0 */
  void (*destroy)(void *self);
  /* Reads one file and puts its documents, from the first to the last. The last call of `put` ends a document. The
   * documents depend on the content, the name and the options alone, so a second call gives the same ones. It keeps only
   * what it needs at a time, whatever the size of the file. It need not read all of the content.
   * ENG_DATA_LOSS: damaged, or cut short. ENG_INVALID: a row is not what the options say. ENG_UNSUPPORTED: the file needs
   * something that this format cannot do. The text says which row, or which byte, and what the user can do; the source
   * adds the path of the file and the name of the format.
   *   Owner: caller.  Valid: during the call.  Call: [setup & created], several calls at a time  since 1.0 */
  eng_status (*read)(void *self, const eng_documents_in *, const eng_documents_out *, eng_documents_seen *,
                     eng_error *);
} eng_documents;

/* ---- for data sources: extension "eng.formats/1", the formats of all plugins ---- */

#define ENG_FORMATS_EXTENSION "eng.formats/1"

/* A format that a source may use. The host sets all of it.
 *   Owner: host.  Valid: until the function of the source in which it was asked for returns.  since 1.0 */
typedef struct eng_format {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  const eng_documents *table; /* all functions are there */
  const eng_options *options; /* for its `create` */
  const char *identity;       /* differs wherever the documents of the same file may differ: for the key of a cache */
} eng_format;

/* Owner: host.  Valid: as long as the host.  since 1.0 */
typedef struct eng_formats {
  uint32_t struct_size;
  uint32_t reserved;
  /* The format with this name. ENG_NOT_FOUND: no plugin provides it; the text lists those that there are. ENG_PRECONDITION:
   * called elsewhere.
   *   Call: [setup & inside eng_data.create or eng_data.build], from the thread of that call  since 1.0 */
  eng_status (*find)(const struct eng_formats *, const char *name, eng_format *out, eng_error *);
  /* The format that claims a file, by `name` (a path, without the ending of a compression) and its first bytes. `head`:
   * the first `size` bytes of the content, at least 64 where there are so many. ENG_NOT_FOUND: none does. ENG_INVALID:
   * several do; the text names them.
   *   Call: [setup & inside eng_data.create or eng_data.build], from the thread of that call  since 1.0 */
  eng_status (*recognise)(const struct eng_formats *, const char *name, const void *head, uint64_t size,
                          eng_format *out, eng_error *);
} eng_formats;

#ifdef __cplusplus
}
#endif
#endif
