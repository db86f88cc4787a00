package milvus

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/rerank"
)

// FuzzTextKeys: a text that was encoded as a companion's key decodes to the same text, and the key has no
// character that milvus-lite cannot store or write in a filter.
func FuzzTextKeys(f *testing.F) {
	for _, s := range []string{"", "plain", "it's", "a%41", "nl\nx", "nul\x00", `back\slash"`, "émoji😀", "2:17", "$"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, comp int) {
		for _, codec := range []idCodec{escapedIDs{}, componentIDs{text: true}} {
			k, err := codec.key(rerank.TextID(s), comp)
			if err != nil {
				if utf8.ValidString(s) {
					t.Fatal(err)
				}
				return
			}
			if strings.ContainsAny(k.text, "'\"\\\x00\n\r") || k.inexpressible() {
				t.Errorf("key %q of %q", k.text, s)
			}
			if id, err := codec.id(k); err != nil || id != rerank.TextID(s) {
				t.Errorf("%q came back as %q, %v", s, id, err)
			}
		}
		text, err := ownerText(rerank.TextID(s))
		if id, back := ownerID(text); err != nil || back != nil || id != rerank.TextID(s) {
			t.Errorf("owner %q came back as %q, %v, %v", s, id, err, back)
		}
	})
}

func FuzzNumberKeys(f *testing.F) {
	f.Add(int64(-1<<63), 0)
	f.Add(int64(1<<63-1), 7)
	f.Fuzz(func(t *testing.T, n int64, comp int) {
		for _, codec := range []idCodec{plainIDs{}, componentIDs{}} {
			k, err := codec.key(rerank.IntID(n), comp)
			if err != nil {
				t.Fatal(err)
			}
			if id, err := codec.id(k); err != nil || id != rerank.IntID(n) {
				t.Errorf("%d came back as %v, %v", n, id, err)
			}
		}
	})
}

// FuzzLiteral: a literal is one token. It has quotes at its ends, and between them no line break and no
// quote or backslash without an escape.
func FuzzLiteral(f *testing.F) {
	f.Add(`a"b`)
	f.Add(`\`)
	f.Add("x\ny\r")
	f.Fuzz(func(t *testing.T, s string) {
		l := key{text: s, isText: true}.literal()
		inner := l[1 : len(l)-1]
		if l[0] != '"' || l[len(l)-1] != '"' || strings.ContainsAny(inner, "\r\n") {
			t.Fatalf("literal %s", l)
		}
		var b strings.Builder
		for i := 0; i < len(inner); i++ {
			c := inner[i]
			if c == '"' {
				t.Fatalf("a bare quote in %s", l)
			}
			if c == '\\' {
				i++
				c = map[byte]byte{'n': '\n', 'r': '\r', '\\': '\\', '"': '"'}[inner[i]]
			}
			b.WriteByte(c)
		}
		if b.String() != s {
			t.Errorf("%q reads back as %q", s, b.String())
		}
	})
}

func FuzzLayout(f *testing.F) {
	good, err := layout{Version: 1, Rows: true, Fields: []layoutField{{Name: "c0", Column: "vector", Dim: 3, Metric: "inner_product"}}}.describe()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(companionMark + "{")
	f.Add("a user's own words")
	f.Fuzz(func(t *testing.T, description string) {
		l, err := readLayout(description)
		if err != nil || l == nil {
			return
		}
		again, err := l.describe()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := readLayout(again); err != nil || len(back.columns(nil)) != len(l.Fields) {
			t.Errorf("%q does not read back: %v", again, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add(`{"num":-9223372036854775808}`, "x\ny")
	f.Fuzz(func(t *testing.T, cursor, key_ string) {
		for _, text := range []bool{false, true} {
			c := &collection{ids: plainIDs{text: text}}
			if k, err := c.readCursor(cursor); err == nil && k != nil && k.isText != text {
				t.Errorf("cursor %q is %+v", cursor, k)
			}
		}
		if !utf8.ValidString(key_) {
			return
		}
		want := key{text: key_, isText: true}
		cur, err := writeCursor(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (&collection{ids: plainIDs{text: true}}).readCursor(cur); err != nil || *got != want {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	})
}

// FuzzPayload: a server's JSON becomes a valid JSON object or an error.
func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`[1]`), "text")
	f.Add([]byte(`{`), []byte(``), "\x00")
	f.Add([]byte(`null`), []byte(`{}`), "")
	f.Fuzz(func(t *testing.T, dynamic, value []byte, text string) {
		jsonField := func(b []byte) *schemapb.FieldData {
			return scalarData("j", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{b}}}})
		}
		set := fieldSet{dynamicField: jsonField(dynamic), "j": jsonField(value), "t": textData("t", []string{text})}
		for _, wanted := range [][]string{nil, {"a"}} {
			p, err := set.rowPayload([]string{"j", "t", "absent"}, wanted, 0)
			if err != nil {
				continue
			}
			if !json.Valid(p) || !bytes.HasPrefix(p, []byte("{")) {
				t.Errorf("payload %s", p)
			}
		}
	})
}
