// Package table stores item features: one or several feature rows for every item of a
// collection, in a file that is mapped read-only. docs/reference/model-format.md says what
// each format loses and how a table is written while it is searched.
//
// # Table file
//
// Numbers are little-endian. Sections follow in this order, each on a multiple of 64 bytes,
// with zeros between them:
//
//   - header, bytes 0 to 4095: magic "LKNSTBL\n"; u32 format version (2), u32 length of the
//     JSON, u32 CRC-32C of the 4,096 bytes without these four; JSON; zeros
//   - features: the rows, from byte 4096
//   - full: rows × features float32, if full precision is kept beside another format
//   - loss: float32, the greatest ‖x − x̂‖ and the greatest norm, of whole rows and then of
//     every block; rows that are not finite do not count
//   - starts: if items own several rows, items + 1 int32; item i owns the rows from starts[i]
//     to starts[i+1] − 1
//   - ids: in one of five forms
//   - index: an open hash table over the ids; none for dense ids
//
// The JSON has
//
//   - meta.model, .model_version, .kind, .collection, .created: the model, where the items
//     come from, and when
//   - meta.features, .rows, .items: the length of a row and the numbers of rows and items
//   - meta.format, .layout, .block, .full_precision: if absent, float32, rows, one block, none
//   - ids, grouped: the form of the ids; whether items own several rows
//   - origin: of a compacted table, its lineage, the generation of the first log behind it,
//     and the number of the last write in it
//   - sections: offset, length and CRC-32C of each
//
// Version 1 had float32 rows, no full and no loss. It is still read.
//
// A row is words of 32 bits. A word has one float32, two 16-bit numbers (lower half first) or
// four int8 (lowest byte first; n stands for n times the block's scale). An int8 row begins
// with the scale of each block (float32); then come the values block by block. A block begins
// with a new word, and zeros fill its last word. In the layout rows, rows lie one after the
// other. In the layout tiles, word w of row r is number 16·w + r mod 16 of its tile of sixteen
// rows, and absent rows are zero.
//
// The forms of ids are dense (item i has the id i; the section is empty), unsigned and signed
// (u64 or i64 each), uuid (16 bytes each, for strings of 8-4-4-4-12 digits in lower case), and
// any (items + 1 offsets, u64, into what follows; an id is "u" or "i" and 8 bytes, or "s" and
// a string).
//
// The index has u32 slots, the least power of two that is at least 8 and twice the items. An id
// lies at its hash modulo the slots, or in the next free slot. A slot holds item + 1, or 0. The
// hash is FNV-1a (64 bits) of a string, or the number itself, mixed as SplitMix64 does:
// h = (h ⊕ h≫30)·bf58476d1ce4e5b9, h = (h ⊕ h≫27)·94d049bb133111eb, h ⊕ h≫31.
//
// While a table is built it lies beside its path as .part, .part.full, .part.ids and .part.json,
// the last checkpoint, where `likeness index` resumes.
//
// # Log of a live table
//
// A log begins with 64 bytes: magic "LKNSLOG\n"; u32 format version (1) and row length; u64
// generation; lineage (16 characters); their CRC-32C; zeros. Records begin on multiples of 32
// bytes, with a header of 32: u32 kind (1 written, 2 deleted) and number of items, u64 body
// length and write number, u32 CRC-32C of body and header. The body has for every item its
// number of rows and its id length (varints) and its id as in the form any. Behind written
// items come zeros up to a multiple of 4 and their float32 rows.
//
// The lineage is the file's origin.lineage, or the first 16 hex digits of the SHA-256 of its
// header. A compaction gives the next log the number N + 1 and removes logs before the file's
// generation. Opening reads the logs, and removes logs of another lineage, which a replaced
// table left. Open without logs shows the last compaction.
package table
