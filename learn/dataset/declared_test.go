package dataset_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/learn/dataset"
)

// claims describes a Parquet file with one column of ids by the sizes that it declares.
type claims struct {
	meta  format.FileMetaData
	pages []format.PageHeader
	data  []byte // of each page
}

// honest returns a file with one page of two ids that declares its true sizes.
func honest() *claims {
	c := &claims{data: make([]byte, 16)}
	c.pages = []format.PageHeader{{Type: format.DataPage, UncompressedPageSize: 16, CompressedPageSize: 16,
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: 2, Encoding: format.Plain, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})}}
	required := thrift.New(format.Required)
	c.meta = format.FileMetaData{Version: 1, NumRows: 2,
		Schema: []format.SchemaElement{{Name: "root", NumChildren: thrift.New[int32](1)}, {Name: "id", Type: thrift.New(format.Int64), RepetitionType: required}},
		RowGroups: []format.RowGroup{{NumRows: 2, TotalByteSize: 16, Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{
			Type: format.Int64, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"id"}, NumValues: 2, DataPageOffset: 4}}}}}}
	return c
}

func (c *claims) page() *format.PageHeader       { return &c.pages[0] }
func (c *claims) group() *format.RowGroup        { return &c.meta.RowGroups[0] }
func (c *claims) column() *format.ColumnMetaData { return &c.group().Columns[0].MetaData }

// file writes the file and returns its path. Without a size of the column, it declares the true one.
func (c *claims) file(t *testing.T) string {
	t.Helper()
	text := []byte("PAR1")
	for i := range c.pages {
		text = append(append(text, encoded(t, &c.pages[i])...), c.data...)
	}
	if c.column().TotalCompressedSize == 0 {
		c.column().TotalCompressedSize = int64(len(text) - 4)
		c.column().TotalUncompressedSize = int64(len(text) - 4)
	}
	return string(withFooter(text, encoded(t, &c.meta)))
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func withFooter(text, footer []byte) []byte {
	text = append(text, footer...)
	return append(binary.LittleEndian.AppendUint32(text, uint32(len(footer))), "PAR1"...)
}

// manyGroups returns a footer that declares row groups which do not exist.
func manyGroups(n int) string {
	footer := []byte{0x15, 2, 0x19, 0x0c, 0x16, 0, 0x19, 0xfc} // version, no schema, no rows, row groups
	footer = binary.AppendUvarint(footer, uint64(n))
	return string(withFooter([]byte("PAR1"), append(footer, make([]byte, n+1)...)))
}

// TestParquetDeclares: sizes that a file declares are checked against the file.
func TestParquetDeclares(t *testing.T) {
	f := newFolder(t)
	ids, err := dataset.ReadIDs(f.file("honest.parquet", honest().file(t)))
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	dictionary := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: 16, CompressedPageSize: 16,
		DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: math.MaxInt32, Encoding: format.Plain})}
	for name, c := range map[string]struct {
		change func(c *claims)
		want   string
	}{
		"values":             {func(c *claims) { c.page().DataPageHeader.V.NumValues = math.MaxInt32 }, "it claims 2147483647 values in 16 bytes"},
		"unpacked bytes":     {func(c *claims) { c.page().UncompressedPageSize = math.MaxInt32 }, "it claims 2147483647 bytes, packed into 16"},
		"packed bytes":       {func(c *claims) { c.page().CompressedPageSize = math.MaxInt32 }, "it claims 2147483647 bytes, 16 are left"},
		"no bytes":           {func(c *claims) { c.page().CompressedPageSize = -1 }, "it has no size"},
		"bytes of a column":  {func(c *claims) { c.column().TotalCompressedSize = 1 << 40 }, "claims bytes 4 to 1099511627780"},
		"bytes that overrun": {func(c *claims) { c.column().TotalCompressedSize = math.MaxInt64 }, "claims bytes 4 to"},
		"place of a column":  {func(c *claims) { c.column().DataPageOffset = 1 << 40 }, "claims bytes 1099511627776 to"},
		"a dictionary": {func(c *claims) {
			c.pages = append([]format.PageHeader{dictionary}, c.pages...)
			c.column().DictionaryPageOffset = 4
		}, "it claims 2147483647 values in 16 bytes"},
		"children": {func(c *claims) { c.meta.Schema[0].NumChildren = thrift.New[int32](math.MaxInt32) }, ""},
	} {
		c0 := honest()
		c.change(c0)
		path := f.file(name+".parquet", c0.file(t))
		bomb.Refused(t, name, func() error { return idsOf(path) }, dataset.ErrInput, name+".parquet", c.want)
	}
	for name, c := range map[string]struct{ text, want string }{
		"footer":     {string(binary.LittleEndian.AppendUint32([]byte("PAR1...."), math.MaxUint32)) + "PAR1", "the footer claims 4294967295 bytes, at most 4 are allowed in a file of 16"},
		"row groups": {manyGroups(60_000), "a list claims 60000 structures, at most 32768"},
	} {
		path := f.file("f.parquet", c.text)
		bomb.Refused(t, name, func() error { return idsOf(path) }, dataset.ErrInput, "f.parquet", c.want)
	}
}

// TestParquetUnpacks: a small page may declare a large unpacked size that a compressor can reach. Reading
// it allocates no more than the limit.
func TestParquetUnpacks(t *testing.T) {
	f := newFolder(t)
	for _, codec := range []format.CompressionCodec{format.Snappy, format.Gzip, format.Zstd, format.Brotli} {
		for _, n := range []int32{1 << 24, 1 << 25} {
			c := honest()
			c.column().Codec = codec
			c.page().UncompressedPageSize = n
			path := f.file("m.parquet", c.file(t))
			bomb.Refused(t, fmt.Sprint(codec, n), func() error { return idsOf(path) }, dataset.ErrInput, "m.parquet")
		}
	}
	// In run-length encoding four bytes stand for any number of equal values.
	c := honest()
	run := binary.AppendUvarint([]byte{1}, 8<<20<<1)
	c.data = append(append(run, 0), make([]byte, 16-len(run)-1)...)
	dictionary := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: 16, CompressedPageSize: 16,
		DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: 2, Encoding: format.Plain})}
	c.page().DataPageHeader.V.NumValues, c.page().DataPageHeader.V.Encoding = 8<<20, format.RLEDictionary
	c.pages = append([]format.PageHeader{dictionary}, c.pages...)
	c.column().DictionaryPageOffset, c.column().NumValues = 4, 8<<20
	path := f.file("runs.parquet", c.file(t))
	_ = bomb.Bounded(t, "runs", func() error {
		_, err := dataset.OpenVectors(t.Context(), path)
		return err
	})
}

func idsOf(path string) error {
	_, err := dataset.ReadIDs(path)
	return err
}

// TestLogsDeclare: a text log declares no sizes, so endless lines and records, too many columns and too
// deep nesting are refused as they are read.
func TestLogsDeclare(t *testing.T) {
	f := newFolder(t)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("c", i)
	}
	deep := `{"query":0,"item":1,"x":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + "}"
	for _, c := range []struct{ name, text, want string }{
		{"quote.csv", "query,item\n0,\"" + strings.Repeat("a\n", 2<<20), "the record at byte 11 has more than 1048576 bytes; is a quotation mark missing?"},
		{"long.csv", strings.Repeat("a", 2<<20), "the record at byte 0 has more than 1048576 bytes"},
		{"columns.csv", strings.Join(names, ",") + ",query,item\n", "line 1 names 10002 columns, at most 1000"},
		{"line.jsonl", `{"query":0,"item":"` + strings.Repeat("a", 2<<20), "line 1 has more than 1048576 bytes"},
		{"deep.jsonl", deep, "line 1: not a JSON object: "},
		{"number.jsonl", `{"query":0,"item":1,"weight":1e999999999}`, "weight 1e999999999 is not a number"},
		{"integer.jsonl", `{"query":0,"item":` + strings.Repeat("9", 60_000) + "}", "an id is a string or an integer"},
	} {
		s := f.sources(c.name, c.text)
		bomb.Refused(t, c.name, func() error { return openClose(t.Context(), s) }, dataset.ErrInput, filepath.Join(f.dir, c.name), c.want)
		if strings.HasPrefix(c.name, "deep") || strings.HasPrefix(c.name, "number") || strings.HasPrefix(c.name, "integer") {
			continue
		}
		bomb.Refused(t, "asked "+c.name, func() error {
			_, err := dataset.ReadAsked(t.Context(), s.Pairs)
			return err
		}, dataset.ErrInput, c.name, c.want)
	}
	asked := f.file("vector.jsonl", `{"vector":`+strings.Repeat("[", 30_000))
	bomb.Refused(t, "vector", func() error {
		_, err := dataset.ReadAsked(t.Context(), asked)
		return err
	}, dataset.ErrInput, "vector.jsonl", "line 1")
	payloads := f.file("payloads.jsonl", strings.Repeat("{\"a\":", 12_000))
	bomb.Refused(t, "payloads", func() error {
		_, err := dataset.ReadPayloads(payloads)
		return err
	}, dataset.ErrInput, "payloads.jsonl", "line 1")
}

// TestRecordsOfOneLimit: the limit applies to each record, wherever in the file it stands.
func TestRecordsOfOneLimit(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("query,item,note\n")
	for range 40 {
		fmt.Fprintf(&b, "0,1,\"%s\"\n", strings.Repeat("a\n", 50_000))
	}
	d := open(t, newFolder(t).sources("log.csv", b.String()))
	if d.Counts.Rows != 40 {
		t.Errorf("%d rows", d.Counts.Rows)
	}
}

func openClose(ctx context.Context, s dataset.Sources) error {
	d, err := dataset.Open(ctx, s)
	if err != nil {
		return err
	}
	return d.Close()
}
