package journal

import (
	"bytes"
	"testing"

	"github.com/likenessdb/likeness/internal/record"
)

func encoded(seq uint64, body string) []byte {
	return record.Append(nil, seq, []byte(body))
}

// FuzzRead reads arbitrary bytes as a segment: the records that it finds exist, in order, and a
// record after the input is found too.
func FuzzRead(f *testing.F) {
	one, two := encoded(1, `{"collection":"c","kind":"upsert","ids":[1]}`), encoded(2, "")
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(one[:len(one)-3:len(one)-3], two...))
	f.Add(bytes.Repeat([]byte(record.Marker), 9))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		end := int64(0)
		for _, p := range record.ReadAll(b, 0).Records {
			if p.At < end || !bytes.Equal(b[p.At:p.At+int64(len(p.Raw))], p.Raw) || !bytes.Equal(encoded(p.Number, string(p.Body)), p.Raw) {
				t.Fatalf("record %d at %d behind %d", p.Number, p.At, end)
			}
			end = p.At + int64(len(p.Raw))
			_, _ = parseWrite(p.Record)
		}
		all := record.ReadAll(append(bytes.Clone(b), two...), 0)
		if len(all.Records) == 0 || all.Records[len(all.Records)-1].Number != 2 {
			t.Fatalf("the record behind is lost: %+v", all)
		}
		if durable, err := parseHeader(b); err == nil && !bytes.Equal(encodeHeader(durable), b[:segmentHeader]) {
			t.Fatal("a header reads otherwise than it is written")
		}
	})
}
