package table

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// someChanges are an upsert of rows of three numbers, one of several rows an
// item, and a delete.
func someChanges() []change {
	rows := rerank.Matrix{Rows: 3, Cols: 3, Data: []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	return []change{
		{sequence: 1, ids: []rerank.ID{rerank.UintID(7), rerank.TextID("a"), rerank.IntID(-1)}, rows: rows, starts: []int32{0, 1, 2, 3}},
		{sequence: 2, ids: []rerank.ID{rerank.TextID("some longer id"), rerank.TextID("")}, rows: rows, starts: []int32{0, 2, 3}},
		{sequence: 3, ids: []rerank.ID{rerank.UintID(7), rerank.TextID("nobody's")}},
	}
}

var someIdentity = logIdentity{features: 3, generation: 5, lineage: "0123456789abcdef"}

// readAll reads a log that is the last.
func readAll(t testing.TB, path string, content []byte) (got []change, length int64, err error) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	var sequence uint64
	length, err = readLog(path, someIdentity, true, &sequence, func(c change) error {
		c.rows.Data = slices.Clone(c.rows.Data)
		got = append(got, c)
		return nil
	})
	return got, length, err
}

func sameChange(a, b change) bool {
	return a.sequence == b.sequence && slices.Equal(a.ids, b.ids) && slices.Equal(a.rows.Data, b.rows.Data) && slices.Equal(a.starts, b.starts)
}

// TestTornLog cuts a log everywhere: the whole records in front of the cut are
// read. Where the bytes behind it are zeros, as after a loss of power, so too.
func TestTornLog(t *testing.T) {
	path, log, ends := filepath.Join(t.TempDir(), "log"), someIdentity.encode(), []int{logHeader}
	for _, c := range someChanges() {
		log = appendRecord(log, c)
		ends = append(ends, len(log))
	}
	for cut := range len(log) + 1 {
		whole := 0
		for whole+1 < len(ends) && ends[whole+1] <= cut {
			whole++
		}
		want := int64(ends[whole])
		if cut < logHeader {
			want = 0
		}
		got, length, err := readAll(t, path, log[:cut])
		for i := range min(whole, len(got)) {
			if !sameChange(got[i], someChanges()[i]) {
				t.Fatalf("cut at %d: record %d is %+v", cut, i, got[i])
			}
		}
		// The last record lacks only zeros, so its length decides.
		if n := len(got); err != nil || n != whole && n != whole+1 || n == whole && length != want {
			t.Fatalf("cut at %d: %d records and %d bytes, %v; want %d and %d", cut, len(got), length, err, whole, want)
		}
		if cut%recordAlign == 0 && cut >= logHeader {
			if _, _, err := readAll(t, path, append(bytes.Clone(log[:cut]), make([]byte, len(log)-cut)...)); err != nil {
				t.Fatalf("zeros from %d on: %v", cut, err)
			}
		}
	}
}

// TestDamagedLog flips every bit of all but the last record: it is seen.
func TestDamagedLog(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "log"), someIdentity.encode()
	log = appendRecord(log, someChanges()[0])
	first := len(log)
	log = appendRecord(appendRecord(log, someChanges()[1]), someChanges()[2])
	for bit := range 8 * first {
		bad := bytes.Clone(log)
		bad[bit/8] ^= 1 << (bit % 8)
		got, _, err := readAll(t, path, bad)
		whole := err == nil && len(got) == 3 && sameChange(got[0], someChanges()[0])
		if !errors.Is(err, ErrTable) && !whole { // padding can change
			t.Fatalf("bit %d: %d records, %v", bit, len(got), err)
		}
	}
}

func FuzzLog(f *testing.F) {
	for _, c := range someChanges() {
		f.Add(appendRecord(nil, c), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, features int) {
		if features < 1 || features > 1<<20 {
			return
		}
		c, n, err := parseRecord(b, features)
		if err != nil {
			return
		}
		if n < recordAlign || n > len(b) {
			t.Fatalf("a record of %d of %d bytes", n, len(b))
		}
		if !c.deletes() && (len(c.starts) != len(c.ids)+1 || int(c.starts[len(c.ids)]) != c.rows.Rows || len(c.rows.Data) != c.rows.Rows*features) {
			t.Fatalf("%d ids, %d starts, %+v", len(c.ids), len(c.starts), c.rows)
		}
		again, _, err := parseRecord(appendRecord(nil, c), features)
		if err != nil || again.sequence != c.sequence || !slices.Equal(again.ids, c.ids) || !slices.Equal(again.starts, c.starts) {
			t.Fatalf("written and read again: %+v, %v", again, err)
		}
	})
}

// TestLogThatDoesNotContinue: a log of another table or generation, one that lacks a
// record, and one that ends within a record though another log follows it are refused.
func TestLogThatDoesNotContinue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	all := someChanges()
	log := appendRecord(appendRecord(appendRecord(someIdentity.encode(), all[0]), all[1]), all[2])
	gap := appendRecord(appendRecord(someIdentity.encode(), all[0]), all[2])
	again := appendRecord(appendRecord(someIdentity.encode(), all[0]), all[0])
	other := func(change func(*logIdentity)) logIdentity {
		id := someIdentity
		change(&id)
		return id
	}
	for name, c := range map[string]struct {
		content []byte
		id      logIdentity
		last    bool
		read    int // records; negative: the log is refused
	}{
		"whole, the last":      {log, someIdentity, true, 3},
		"whole":                {log, someIdentity, false, 3},
		"torn, the last":       {log[:len(log)-recordAlign], someIdentity, true, 2},
		"torn":                 {log[:len(log)-recordAlign], someIdentity, false, -1},
		"empty, the last":      {nil, someIdentity, true, 0},
		"empty":                {nil, someIdentity, false, -1},
		"a record is missing":  {gap, someIdentity, true, -1},
		"a record twice":       {again, someIdentity, true, -1},
		"another generation":   {log, other(func(id *logIdentity) { id.generation++ }), true, -1},
		"another lineage":      {log, other(func(id *logIdentity) { id.lineage = "another lineage!" }), true, -1},
		"another row's length": {log, other(func(id *logIdentity) { id.features++ }), true, -1},
	} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		sequence, n := uint64(0), 0
		_, err := readLog(path, c.id, c.last, &sequence, func(change) error { n++; return nil })
		if errors.Is(err, ErrTable) != (c.read < 0) || err == nil && (n != c.read || sequence != uint64(n)) {
			t.Errorf("%s: %d records, the last is %d; %v", name, n, sequence, err)
		}
	}
}
