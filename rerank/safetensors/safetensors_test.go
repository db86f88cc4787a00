package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// file puts a header in front of data.
func file(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func read(b []byte) (*safetensors.File, error) {
	return safetensors.Read(bytes.NewReader(b), int64(len(b)))
}

// entry is the header of a file with one tensor "w".
func entry(dtype, shape string, end int) string {
	return fmt.Sprintf(`{"w":{"dtype":%q,"shape":%s,"data_offsets":[0,%d]}}`, dtype, shape, end)
}

func TestTypes(t *testing.T) {
	le := binary.LittleEndian
	floats := map[string][]byte{
		"F64":  le.AppendUint64(le.AppendUint64(nil, math.Float64bits(-1.5)), math.Float64bits(1e-60)),
		"F32":  le.AppendUint32(le.AppendUint32(nil, math.Float32bits(-1.5)), 0),
		"F16":  {0x00, 0xbe, 0, 0},
		"BF16": {0xc0, 0xbf, 0, 0},
	}
	for dtype, data := range floats {
		f, err := read(file(entry(dtype, "[2,1]", len(data)), data...))
		if err != nil {
			t.Errorf("%s: %v", dtype, err)
			continue
		}
		if w, err := f.Tensors.Get("w", 2, 1); err != nil || !slices.Equal(w.Data, []float32{-1.5, 0}) {
			t.Errorf("%s: %v, %v", dtype, w, err)
		}
	}
	ints := map[string][]byte{
		"I64": le.AppendUint64(le.AppendUint64(nil, math.MaxUint64), 1<<40),
		"I32": le.AppendUint32(le.AppendUint32(nil, math.MaxUint32), 7),
	}
	for dtype, data := range ints {
		f, err := read(file(entry(dtype, "[2]", len(data)), data...))
		if err != nil {
			t.Fatal(err)
		}
		w, err := f.Int("w", -1)
		if want := map[string]int64{"I64": 1 << 40, "I32": 7}[dtype]; err != nil || !slices.Equal(w.Data, []int64{-1, want}) {
			t.Errorf("%s: %v, %v", dtype, w, err)
		}
		if _, err := f.Int("w", 3); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("shape: err = %v", err)
		}
		if _, err := f.Int("v"); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("missing: err = %v", err)
		}
	}
}

func TestRefusals(t *testing.T) {
	zeros := make([]byte, 64)
	two := func(a, b string) string {
		return `{"a":{"dtype":"F32","shape":[2],"data_offsets":` + a + `},"b":{"dtype":"F32","shape":[2],"data_offsets":` + b + `}}`
	}
	le := binary.LittleEndian
	cases := map[string]struct {
		file []byte
		want string
	}{
		"empty":            {nil, "too few"},
		"header too long":  {file("{}")[:9], "claims 2 bytes"},
		"header bomb":      {le.AppendUint64(nil, math.MaxUint64), "claims 18446744073709551615 bytes"},
		"header over cap":  {append(le.AppendUint64(nil, safetensors.MaxHeader+1), make([]byte, safetensors.MaxHeader+1)...), "at most 4194304"},
		"no JSON":          {file("hello"), "invalid"},
		"not an object":    {file("[]"), "where { should be"},
		"not UTF-8":        {file("{\"\xff\":1}"), "UTF-8"},
		"after the brace":  {file("{}{}"), "follows"},
		"cut JSON":         {file(`{"w":{"dtype"`), "EOF"},
		"nested":           {file(strings.Repeat(`{"a":`, 1<<19)), "unknown"},
		"arrays":           {file(`{"w":{"shape":` + strings.Repeat(`[`, 1<<20)), "natural number"},
		"name twice":       {file(`{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`), `"w" occurs twice`},
		"key twice":        {file(`{"w":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}}`), "occurs twice"},
		"metadata twice":   {file(`{"__metadata__":{"a":"1","a":"2"}}`), "occurs twice"},
		"metadata number":  {file(`{"__metadata__":{"a":1}}`), "want a string"},
		"key missing":      {file(`{"w":{"dtype":"F32","shape":[0]}}`), "all needed"},
		"unknown key":      {file(`{"w":{"dtype":"F32","order":"C"}}`), `"order" is unknown`},
		"unknown type":     {file(entry("I8", "[2]", 2), 0, 0), "dtype is I8"},
		"negative":         {file(entry("F32", "[-1]", 4), zeros[:4]...), "not a natural number"},
		"fraction":         {file(entry("F32", "[1.0]", 4), zeros[:4]...), "not a natural number"},
		"rank":             {file(entry("F32", "[1,1,1,1,1,1,1,1,1]", 4), zeros[:4]...), "more than 8"},
		"large dimension":  {file(entry("F32", "[4294967296]", 4), zeros[:4]...), "at most 2147483647"},
		"overflow":         {file(entry("F32", "[2147483647,2147483647,2147483647]", 4), zeros[:4]...), "overflows"},
		"shape and length": {file(entry("F32", "[3]", 8), zeros[:8]...), "needs 12 bytes, data_offsets hold 8"},
		"shape too small":  {file(entry("F32", "[1]", 8), zeros[:8]...), "needs 4 bytes, data_offsets hold 8"},
		"backwards":        {file(`{"w":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}}`), "want a beginning and an end"},
		"truncated":        {file(entry("F32", "[4]", 16), zeros[:15]...), "truncated"},
		"rest":             {file(entry("F32", "[4]", 16), zeros[:17]...), "1 bytes follow the last tensor"},
		"gap":              {file(two("[0,8]", "[12,20]"), zeros[:20]...), "belong to no tensor"},
		"overlap":          {file(two("[0,8]", "[4,12]"), zeros[:12]...), "overlaps"},
		"NaN":              {file(entry("F32", "[2]", 8), 0, 0, 0, 0, 0, 0, 0xc0, 0x7f), `tensor "w": element 1 is NaN`},
		"infinite F16":     {file(entry("F16", "[1]", 2), 0, 0x7c), "element 0 is +Inf"},
		"NaN BF16":         {file(entry("BF16", "[1]", 2), 0xc0, 0xff), "element 0 is NaN"},
		"F64 range":        {file(entry("F64", "[1]", 8), le.AppendUint64(nil, math.Float64bits(-1e39))...), "element 0 is -1e+39"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.file)
			if !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %.200v\nwant ErrFormat with %q", err, c.want)
			}
		})
	}
}

func TestAllocation(t *testing.T) {
	const n = 1 << 22
	b := file(entry("F16", fmt.Sprintf("[%d]", n/2), n), make([]byte, n)...)
	bomb := file(`{"w":{"dtype":"F32","shape":[2147483647,64],"data_offsets":[0,549755813632]}}`)
	for name, c := range map[string]struct {
		file  []byte
		limit uint64
	}{"file": {b, 2*n + 1<<17}, "bomb": {bomb, 1 << 17}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = read(c.file)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > c.limit {
			t.Errorf("%s: reading %d bytes allocated %d, limit %d", name, len(c.file), got, c.limit)
		}
	}
}

func sample() *safetensors.File {
	return &safetensors.File{
		Metadata: map[string]string{"b": "2", "a": "<1> \"é\""},
		Tensors: tensor.Set{
			"z": {Shape: []int{2, 2}, Data: []float32{1, -2, 3.5, math.SmallestNonzeroFloat32}},
			"é": {Shape: []int{0, 3}}, "scalar": {Data: []float32{9}},
		},
		Ints: map[string]safetensors.Ints{"ids": {Shape: []int{2}, Data: []int64{math.MinInt64, math.MaxInt64}}},
	}
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	if err := safetensors.WriteFile(path, sample()); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Metadata["a"] != "<1> \"é\"" || !slices.Equal(f.Ints["ids"].Data, sample().Ints["ids"].Data) {
		t.Errorf("read %+v", f)
	}
	var second bytes.Buffer
	if err := safetensors.Write(&second, f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second.Bytes()) {
		t.Error("written again, the file differs")
	}
}

func TestWriteRefuses(t *testing.T) {
	one := tensor.Tensor{Shape: []int{1}, Data: []float32{1}}
	for name, f := range map[string]*safetensors.File{
		"shape":    {Tensors: tensor.Set{"w": {Shape: []int{2}, Data: []float32{1}}}},
		"negative": {Tensors: tensor.Set{"w": {Shape: []int{-1, -1}, Data: []float32{1}}}},
		"name":     {Tensors: tensor.Set{"__metadata__": one}},
		"twice":    {Tensors: tensor.Set{"w": one}, Ints: map[string]safetensors.Ints{"w": {Shape: []int{1}, Data: []int64{1}}}},
		"header":   {Metadata: map[string]string{"a": strings.Repeat("x", safetensors.MaxHeader)}},
	} {
		if err := safetensors.Write(&bytes.Buffer{}, f); !errors.Is(err, safetensors.ErrFormat) {
			t.Errorf("%s: err = %v, want ErrFormat", name, err)
		}
	}
}

// TestDamage cuts and flips a file; nothing may panic, and a cut never reads.
func TestDamage(t *testing.T) {
	var b bytes.Buffer
	if err := safetensors.Write(&b, sample()); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		bad := bytes.Clone(b.Bytes())
		cut := rng.IntN(2) == 0
		if cut {
			bad = bad[:rng.IntN(len(bad))]
		} else {
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		}
		_, err := read(bad)
		if err == nil && cut {
			t.Fatalf("a file of %d bytes reads after %d", b.Len(), len(bad))
		}
		if err != nil && !errors.Is(err, safetensors.ErrFormat) {
			t.Fatalf("err = %v, want ErrFormat", err)
		}
	}
}

func TestShippedFiles(t *testing.T) {
	count := 0
	for _, pattern := range []string{"testdata/golden/*/*", "testdata/golden/*/*/*", "examples/models/*/*"} {
		paths, err := filepath.Glob("../../" + pattern + ".safetensors")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if _, err := safetensors.ReadFile(path); err != nil {
				t.Error(err)
			}
			count++
		}
	}
	if count < 80 {
		t.Errorf("%d files found", count)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := safetensors.Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(file(entry("BF16", "[2]", 4), 0, 0, 0x80, 0x3f))
	f.Add(file(`{"__metadata__":{"format":"pt"}}  `))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(b)
		if err != nil {
			if !errors.Is(err, safetensors.ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			return
		}
		var out bytes.Buffer
		if err := safetensors.Write(&out, got); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := read(out.Bytes()); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
