package table_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

func save(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDamage flips bits and cuts the file: each must be seen.
func TestDamage(t *testing.T) {
	for _, form := range []string{"dense", "text"} {
		path := build(t, idCases()[form])
		good := read(t, path)
		rng := rand.New(rand.NewPCG(3, 4))
		refused := func(what string, bad []byte) {
			t.Helper()
			save(t, path, bad)
			if _, err := table.Open(path, table.Expect{}); !errors.Is(err, table.ErrTable) {
				t.Fatalf("%s: err = %v, want ErrTable", what, err)
			}
		}
		for range 500 {
			bad := bytes.Clone(good)
			bad[rng.IntN(1024)] ^= 1 << rng.IntN(8)
			refused("a flip in the header", bad)
		}
		for range 500 {
			bad := bytes.Clone(good)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			refused("a flip", bad)
		}
		for range 200 {
			refused("a cut", good[:rng.IntN(len(good))])
		}
		refused("a byte more", append(bytes.Clone(good), 0))
	}
}

// TestNewerFormat: a table of a format to come is refused with both versions and the remedy.
func TestNewerFormat(t *testing.T) {
	path := build(t, idCases()["dense"])
	b := read(t, path)
	b[8] = 99 // the format version
	save(t, path, seal(b))
	_, err := table.Open(path, table.Expect{})
	if !errors.Is(err, table.ErrTable) {
		t.Fatal(err)
	}
	for _, want := range []string{"99", "1 to 2", "likeness index"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// seal makes the checksum of a changed header right again: damage by somebody
// who knows the format.
func seal(b []byte) []byte {
	b = bytes.Clone(b)
	const fixed, header = 20, 4096
	if len(b) >= header {
		castagnoli := crc32.MakeTable(crc32.Castagnoli)
		sum := crc32.Update(crc32.Checksum(b[:fixed-4], castagnoli), castagnoli, b[fixed:header])
		binary.LittleEndian.PutUint32(b[16:], sum)
	}
	return b
}

// TestDeclared: whatever number of a header is made a great one, the file is refused, or
// is read in little memory.
func TestDeclared(t *testing.T) {
	number := regexp.MustCompile(`:-?[0-9]+`)
	for form, ids := range idCases() {
		path := build(t, ids)
		good := read(t, path)
		length := int(binary.LittleEndian.Uint32(good[12:]))
		text := string(good[20 : 20+length])
		places := number.FindAllStringIndex(text, -1)
		if len(places) < 10 {
			t.Fatalf("%s: the header %s", form, text)
		}
		for _, place := range places {
			for _, great := range []string{"2147483647", "1099511627776", "9223372036854775807", "-9223372036854775808"} {
				changed := text[:place[0]+1] + great + text[place[1]:]
				bad := bytes.Clone(good)
				clear(bad[20:4096])
				copy(bad[20:4096], changed)
				binary.LittleEndian.PutUint32(bad[12:], uint32(len(changed)))
				save(t, path, seal(bad))
				name := form + ": " + text[max(0, place[0]-20):place[0]+1] + great
				bomb.Bounded(t, name, func() error {
					tab, err := table.Open(path, table.Expect{})
					if err == nil {
						return tab.Close()
					}
					if !errors.Is(err, table.ErrTable) {
						t.Errorf("%s: %v, want ErrTable", name, err)
					}
					return err
				})
			}
		}
	}
}

func FuzzOpenTable(f *testing.F) {
	for _, ids := range idCases() {
		f.Add(read(f, build(f, ids)))
	}
	path := filepath.Join(f.TempDir(), "t")
	f.Fuzz(func(t *testing.T, b []byte) {
		save(t, path, seal(b))
		tab, err := table.Open(path, table.Expect{})
		if err != nil {
			if !errors.Is(err, table.ErrTable) {
				t.Fatalf("err = %v, want ErrTable", err)
			}
			return
		}
		defer tab.Close()
		for i := range tab.Len() {
			id := tab.ID(i)
			_, _ = tab.Find(id)
			from, to := tab.Rows(i)
			_ = tab.Features().Slice(from, to)
		}
		_, _ = tab.Find(rerank.TextID("absent"))
	})
}
