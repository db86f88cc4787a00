package journal

import (
	"bytes"
	"testing"
)

func encoded(seq uint64, body string) []byte {
	b := appendRecord(nil, []byte(body))
	putSequence(b, seq)
	return b
}

// FuzzRead reads arbitrary bytes as a segment: the records that it finds exist, in order, and a
// record after the input is found too.
func FuzzRead(f *testing.F) {
	one, two := encoded(1, `{"collection":"c","kind":"upsert","ids":[1]}`), encoded(2, "")
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(one[:len(one)-3:len(one)-3], two...))
	f.Add(bytes.Repeat(marker, 9))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		end := int64(0)
		for _, p := range readRecords(b, 0).records {
			if p.at < end || !bytes.Equal(b[p.at:p.at+int64(len(p.raw))], p.raw) || !bytes.Equal(encoded(p.seq, string(p.body)), p.raw) {
				t.Fatalf("record %d at %d behind %d", p.seq, p.at, end)
			}
			end = p.at + int64(len(p.raw))
			_, _ = p.parseWrite()
		}
		all := readRecords(append(bytes.Clone(b), two...), 0)
		if len(all.records) == 0 || all.records[len(all.records)-1].seq != 2 {
			t.Fatalf("the record behind is lost: %+v", all)
		}
		if durable, err := parseHeader(b); err == nil && !bytes.Equal(encodeHeader(durable), b[:segmentHeader]) {
			t.Fatal("a header reads otherwise than it is written")
		}
	})
}
