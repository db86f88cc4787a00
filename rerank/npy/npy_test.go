package npy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// file is a .npy file of the given version.
func file(version byte, dictionary string, data ...byte) []byte {
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dictionary)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dictionary)))
	}
	return append(append(b, dictionary...), data...)
}

func dictionary(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }          \n", descr, shape)
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.npy")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersionsAndTypes(t *testing.T) {
	le := binary.LittleEndian
	f4 := le.AppendUint32(le.AppendUint32(nil, math.Float32bits(0.5)), math.Float32bits(-2))
	f2 := []byte{0x00, 0x38, 0x00, 0xc0}
	f8 := le.AppendUint64(le.AppendUint64(nil, math.Float64bits(0.5)), math.Float64bits(-2))
	for version := byte(1); version <= 3; version++ {
		for descr, data := range map[string][]byte{"<f4": f4, "<f2": f2, "<f8": f8} {
			for _, pad := range []string{"", " ", "   "} { // data aligned and not
				m, err := npy.Open(save(t, file(version, pad+dictionary(descr, "(1, 2)"), data...)))
				if err != nil {
					t.Errorf("version %d %s: %v", version, descr, err)
					continue
				}
				if m.Rows != 1 || m.Cols != 2 || !slices.Equal(m.Row(0), []float32{0.5, -2}) {
					t.Errorf("version %d %s: %v", version, descr, m.Matrix)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestFloat16(t *testing.T) {
	values := map[uint16]float32{
		0x0000: 0, 0x0001: 0x1p-24, 0x03ff: 0x1p-14 - 0x1p-24, 0x0400: 0x1p-14, 0x3c00: 1, 0x3c01: 1 + 0x1p-10,
		0x7bff: 65504, 0xfbff: -65504, 0x8001: -0x1p-24, 0x7c00: float32(math.Inf(1)), 0xfc00: float32(math.Inf(-1)),
	}
	var data []byte
	for h := range values {
		data = binary.LittleEndian.AppendUint16(data, h)
	}
	m, err := npy.Open(save(t, file(1, dictionary("<f2", fmt.Sprintf("(%d, 1)", len(values))), data...)))
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range m.Data {
		if want := values[binary.LittleEndian.Uint16(data[2*i:])]; got != want {
			t.Errorf("%#04x = %v, want %v", binary.LittleEndian.Uint16(data[2*i:]), got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	zeros := make([]byte, 64)
	good := file(1, dictionary("<f4", "(2, 2)"), zeros[:16]...)
	cases := map[string]struct {
		file []byte
		want string
	}{
		"empty":         {nil, "magic"},
		"other file":    {[]byte("PK\x03\x04 and more of it"), "magic"},
		"version":       {append([]byte("\x93NUMPY\x04\x00"), zeros...), "at most 3.0"},
		"header cut":    {[]byte("\x93NUMPY\x02\x00\xff\xff"), "truncated"},
		"header bomb":   {[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "claims"},
		"header length": {good[:40], "claims"},
		"no dictionary": {file(1, "hello"), "not a plain array"},
		"structured":    {file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"), "not a plain array"},
		"fortran":       {file(1, strings.Replace(dictionary("<f4", "(2, 2)"), "False", "True", 1), zeros[:16]...), "ascontiguousarray"},
		"big endian":    {file(1, dictionary(">f4", "(2, 2)"), zeros[:16]...), `type ">f4"`},
		"long double":   {file(1, dictionary("<f16", "(2, 2)"), zeros...), "astype"},
		"object":        {file(1, dictionary("|O", "(2, 2)"), zeros[:16]...), `type "|O"`},
		"one dimension": {file(1, dictionary("<f4", "(4,)"), zeros[:16]...), "two-dimensional"},
		"scalar":        {file(1, dictionary("<f4", "()"), zeros[:4]...), "two-dimensional"},
		"three":         {file(1, dictionary("<f4", "(1, 2, 2)"), zeros[:16]...), "two-dimensional"},
		"truncated":     {good[:len(good)-1], "needs 16 bytes of data, there are 15"},
		"rest":          {append(slices.Clone(good), 0), "1 bytes follow"},
		"shape bomb":    {file(1, dictionary("<f4", "(2147483647, 2147483647)"), zeros[:16]...), "bytes"},
		"overflow":      {file(1, dictionary("<f4", "(2147483647, 2147483647, 2147483647)"), zeros[:16]...), "more bytes than"},
		"integers":      {file(1, dictionary("<i8", "(1099511627776,)"), zeros[:8]...), ""},
		"long shape":    {file(2, dictionary("<f4", "("+strings.Repeat("1, ", 20_000)+")"), zeros[:4]...), ""},
		"dimension":     {file(1, dictionary("<f4", "(4294967296, 1)"), zeros[:16]...), "too large"},
	}
	for name, c := range cases {
		path := save(t, c.file)
		bomb.Refused(t, name, func() error {
			_, err := npy.Open(path)
			return err
		}, npy.ErrFormat, c.want)
	}
	if _, err := npy.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want os.ErrNotExist", err)
	}
	if _, err := npy.Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
}

func TestReadInts(t *testing.T) {
	le := binary.LittleEndian
	for descr, data := range map[string][]byte{
		"<i8": le.AppendUint64(le.AppendUint64(nil, math.MaxUint64), 3),
		"<i4": le.AppendUint32(le.AppendUint32(nil, math.MaxUint32), 3),
	} {
		got, err := npy.ReadInts(save(t, file(1, dictionary(descr, "(2,)"), data...)))
		if err != nil || !slices.Equal(got, []int64{-1, 3}) {
			t.Errorf("%s: %v, %v", descr, got, err)
		}
	}
	for _, b := range [][]byte{
		file(1, dictionary("<f4", "(1,)"), 0, 0, 0, 0),
		file(1, dictionary("<i4", "(1, 1)"), 0, 0, 0, 0),
		file(1, dictionary("<U1", "(1,)"), 'a', 0, 0, 0),
	} {
		if _, err := npy.ReadInts(save(t, b)); !errors.Is(err, npy.ErrFormat) {
			t.Errorf("err = %v, want ErrFormat", err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, shape := range [][2]int{{0, 3}, {1, 1}, {5, 7}} {
		want := rerank.NewMatrix(shape[0], shape[1])
		for i := range want.Data {
			want.Data[i] = float32(i) - 0.25
		}
		path := filepath.Join(t.TempDir(), "m.npy")
		if err := npy.Write(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := npy.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rows != want.Rows || got.Cols != want.Cols || !slices.Equal(got.Data, want.Data) {
			t.Errorf("read %v, want %v", got.Matrix, want)
		}
		if err := errors.Join(got.Close(), got.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := npy.Write(filepath.Join(t.TempDir(), "m"), rerank.Matrix{Rows: 2, Cols: 2}); !errors.Is(err, npy.ErrFormat) {
		t.Errorf("err = %v, want ErrFormat", err)
	}
}

func TestShippedVectors(t *testing.T) {
	for name, rows := range map[string]int{"items": 77, "train": 10_003, "test": 3_080} {
		m, err := npy.Open("../../examples/data/banking77/" + name + "_vectors.npy")
		if err != nil {
			t.Fatal(err)
		}
		if m.Rows != rows || m.Cols != 384 {
			t.Errorf("%s: %d x %d", name, m.Rows, m.Cols)
		}
		for r := range m.Rows {
			if n := rerank.Norm(m.Row(r)); !(math.Abs(n-1) <= 1e-3) {
				t.Fatalf("%s: row %d has norm %g", name, r, n)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(file(1, dictionary("<f4", "(1, 2)"), make([]byte, 8)...))
	f.Add(file(2, dictionary("<f2", "(1, 2)"), make([]byte, 4)...))
	f.Add(file(3, dictionary("<i8", "(1,)"), make([]byte, 8)...))
	path := filepath.Join(f.TempDir(), "m.npy")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if ints, err := npy.ReadInts(path); err == nil && 4*len(ints) > len(b) {
			t.Errorf("%d integers of %d bytes", len(ints), len(b))
		}
		m, err := npy.Open(path)
		if err != nil {
			if !errors.Is(err, npy.ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			return
		}
		defer m.Close()
		if len(m.Data) != m.Rows*m.Cols || 2*len(m.Data) > len(b) {
			t.Errorf("%d x %d in %d bytes", m.Rows, m.Cols, len(b))
		}
	})
}
