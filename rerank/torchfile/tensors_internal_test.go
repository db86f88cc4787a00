package torchfile

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
)

// TestViewsOfAStorage: a tensor has the numbers of its view in the order of its shape. All views together are no larger
// than the file, and a double beyond float32 is refused.
func TestViewsOfAStorage(t *testing.T) {
	const count = 8
	var floats []byte
	for i := range count {
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(i)))
	}
	f := &File{size: 24, storage: func(s storage) ([]byte, error) {
		if s.kind == "torch.DoubleStorage" {
			return binary.LittleEndian.AppendUint64(nil, math.Float64bits(1e300)), nil
		}
		return floats, nil
	}}
	view := &array{storage: storage{"torch.FloatStorage", "0", count}, offset: 1, shape: []int64{2, 3}, strides: []int64{1, 2}, elements: 6, reach: 6}
	for range 2 {
		got, err := f.load(view)
		if want := []float32{1, 3, 5, 2, 4, 6}; err != nil || !slices.Equal(got.Data, want) {
			t.Errorf("%v, %v; want %v", got.Data, err, want)
		}
	}
	if _, err := f.load(view); !errors.Is(err, ErrFormat) {
		t.Errorf("18 numbers of a file of 24 bytes: %v, want ErrFormat", err)
	}
	f.loaded = 0
	if _, err := f.load(&array{storage: storage{"torch.DoubleStorage", "1", 1}, elements: 1, reach: 1}); !errors.Is(err, ErrFormat) {
		t.Errorf("1e300: %v, want ErrFormat", err)
	}
}

// TestLongIntegers: the last byte of an integer has its sign.
func TestLongIntegers(t *testing.T) {
	for bytes, want := range map[string]int64{"\x00": 0, "\x01\xff": -1, "\x02\xff\x00": 255, "\x02\x00\x80": -1 << 15, "\x08\xff\xff\xff\xff\xff\xff\xff\xff": -1} {
		m := &machine{b: []byte(bytes)}
		if got, err := m.integer(opLong1); err != nil || got != want {
			t.Errorf("%x is %v, %v; want %d", bytes, got, err, want)
		}
	}
}

// TestADictOfTwoNames is listed once, by the first.
func TestADictOfTwoNames(t *testing.T) {
	weights := &dict{entries: []entry{{"w", &array{}}}}
	f := &File{}
	f.collect(nil, &dict{entries: []entry{{"model", weights}, {"average", weights}}}, map[*dict]bool{})
	if len(f.Dicts) != 1 || f.Dicts[0].Path != "model" {
		t.Errorf("%d dicts, want model alone", len(f.Dicts))
	}
}
