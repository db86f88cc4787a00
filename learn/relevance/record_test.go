package relevance

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// FuzzScan: whatever a file holds, reading it ends, yields whole records alone, and
// what was appended behind damage is found.
func FuzzScan(f *testing.F) {
	good := appendRecord(nil, key{1}, []key{{2}, {3}}, []float32{0.5, -1})
	f.Add(good)
	f.Add(append(slices.Clone(good), good[:20]...))
	f.Add(append([]byte{0xF7, 'R', 'L', 0xFD, 0xff, 0xff, 0xff, 0x7f}, good...))
	f.Add(appendRecord(nil, key{}, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries := 0
		end, lost, err := scanRecords(bytes.NewReader(b), 0, int64(len(b)), func(r record) {
			for i := range r.len() {
				_, _ = r.entry(i)
				entries++
			}
		})
		if err != nil || end < 0 || end > int64(len(b)) || lost < 0 || lost > end || int64(entries)*entrySize > end {
			t.Fatalf("end %d, lost %d, %d entries of %d bytes, %v", end, lost, entries, len(b), err)
		}
		whole := append(slices.Clone(b[:end]), good...)
		last := false
		again, _, err := scanRecords(bytes.NewReader(whole), 0, int64(len(whole)), func(r record) { last = r.query == key{1} && r.len() == 2 })
		if err != nil || again != int64(len(whole)) || !last {
			t.Fatalf("a record behind %d bytes is not found: end %d of %d, %v", end, again, len(whole), err)
		}
	})
}

// TestScanLargeFile: records that cross the borders of read blocks.
func TestScanLargeFile(t *testing.T) {
	items, scores := make([]key, maxEntries), make([]float32, maxEntries)
	var b []byte
	for i := range 40 {
		b = appendRecord(b, key{byte(i)}, items[:maxEntries-i], scores[:maxEntries-i])
	}
	b = append(b[:3*maxRecord:3*maxRecord], append([]byte("damage"), b[3*maxRecord:]...)...)
	n := 0
	end, lost, err := scanRecords(bytes.NewReader(b), 0, int64(len(b)), func(r record) {
		if r.len() != maxEntries-int(r.query[0]) {
			t.Errorf("record %d has %d entries", r.query[0], r.len())
		}
		n++
	})
	if err != nil || end != int64(len(b)) || n != 39 || lost == 0 {
		t.Errorf("%d records, end %d of %d, lost %d, %v", n, end, len(b), lost, err)
	}
	if _, _, err := parseRecord(b[1:]); !errors.Is(err, errRecord) {
		t.Errorf("parse: %v", err)
	}
}
