package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// MaxHeader is the longest accepted header. Headers of the largest models have about
	// 100 kB.
	MaxHeader = 4 << 20
	// MaxRank is the largest accepted number of dimensions.
	MaxRank = 8

	metadataKey = "__metadata__"
)

// entry describes one tensor of the header.
type entry struct {
	name       string
	dtype      dtype
	shape      []int
	begin, end int64 // byte positions in the data
}

// elements returns the number of elements of the tensor.
func (e entry) elements() int { return int((e.end - e.begin) / e.dtype.size()) }

// readHeader returns the tensors in the order of their data, the metadata, and the position
// where the data starts.
func readHeader(r io.ReaderAt, size int64) (entries []entry, metadata map[string]string, start int64, err error) {
	raw, err := RawHeader(r, size)
	if err != nil {
		return nil, nil, 0, err
	}
	start = int64(8 + len(raw))
	p := &headerParser{dec: json.NewDecoder(bytes.NewReader(raw))}
	p.dec.UseNumber()
	if err := p.parse(); err != nil {
		return nil, nil, 0, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	if err := checkLayout(p.entries, size-start); err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return p.entries, p.metadata, start, nil
}

// RawHeader returns the JSON header of a file of the given size. It returns ErrFormat, or
// the error of r.
func RawHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes are too few for the length of a header", ErrFormat, size)
	}
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("reading the header's length: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if limit := uint64(min(size-8, MaxHeader)); length > limit {
		return nil, fmt.Errorf("%w: the header claims %d bytes, at most %d are allowed in a file of %d bytes; "+
			"the file is truncated or is no safetensors file", ErrFormat, length, limit, size)
	}
	raw := make([]byte, length)
	if n, err := r.ReadAt(raw, 8); n < len(raw) {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: header: not UTF-8", ErrFormat)
	}
	return raw, nil
}

// headerParser parses only the structure that a header can have. So nothing can be nested
// too deeply, and it sees every name, so that repeated names are detected.
type headerParser struct {
	dec      *json.Decoder
	entries  []entry
	metadata map[string]string
}

func (p *headerParser) parse() error {
	seen := map[string]bool{}
	err := p.object(func(name string) error {
		if seen[name] {
			return fmt.Errorf("%q occurs twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			return p.parseMetadata()
		}
		e, err := p.tensor(name)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		p.entries = append(p.entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the closing brace")
	}
	return nil
}

func (p *headerParser) parseMetadata() error {
	p.metadata = map[string]string{}
	return p.object(func(key string) error {
		if _, ok := p.metadata[key]; ok {
			return fmt.Errorf("%s: %q occurs twice", metadataKey, key)
		}
		token, err := p.dec.Token()
		if err != nil {
			return err
		}
		text, ok := token.(string)
		if !ok {
			return fmt.Errorf("%s: %q is %v, want a string", metadataKey, key, token)
		}
		p.metadata[key] = text
		return nil
	})
}

func (p *headerParser) tensor(name string) (entry, error) {
	e := entry{name: name, begin: -1}
	var haveShape bool
	err := p.object(func(key string) (err error) {
		switch {
		case key == "dtype" && e.dtype == "":
			e.dtype, err = p.dtype()
		case key == "shape" && !haveShape:
			haveShape = true
			e.shape, err = p.shape()
		case key == "data_offsets" && e.begin < 0:
			e.begin, e.end, err = p.offsets()
		default:
			err = fmt.Errorf("key %q is unknown or occurs twice", key)
		}
		return err
	})
	switch {
	case err != nil:
		return entry{}, err
	case e.dtype == "" || !haveShape || e.begin < 0:
		return entry{}, errors.New("dtype, shape and data_offsets are all needed")
	}
	return e, e.check()
}

func (p *headerParser) dtype() (dtype, error) {
	token, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	text, _ := token.(string)
	if t := dtype(text); t.size() > 0 {
		return t, nil
	}
	return "", fmt.Errorf("dtype is %v; F64, F32, F16, BF16, I64 and I32 can be read: convert the tensor", token)
}

func (p *headerParser) shape() ([]int, error) {
	dims, err := p.naturals(MaxRank)
	if err != nil {
		return nil, fmt.Errorf("shape: %w", err)
	}
	shape := make([]int, len(dims))
	for i, d := range dims {
		if d > math.MaxInt32 {
			return nil, fmt.Errorf("shape: dimension %d is %d, at most %d", i, d, math.MaxInt32)
		}
		shape[i] = int(d)
	}
	return shape, nil
}

func (p *headerParser) offsets() (begin, end int64, err error) {
	pair, err := p.naturals(2)
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("data_offsets: %w", err)
	case len(pair) != 2 || pair[0] > pair[1]:
		return 0, 0, fmt.Errorf("data_offsets are %v, want a beginning and an end", pair)
	}
	return pair[0], pair[1], nil
}

// object calls member for every key. member must read the key's value.
func (p *headerParser) object(member func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("%v where a name should be", token)
		}
		if err := member(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// naturals reads an array of at most limit non-negative integers.
func (p *headerParser) naturals(limit int) ([]int64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	var numbers []int64
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		text, _ := token.(json.Number)
		n, err := strconv.ParseUint(string(text), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%v is not a natural number", token)
		}
		if len(numbers) == limit {
			return nil, fmt.Errorf("more than %d numbers", limit)
		}
		numbers = append(numbers, int64(n))
	}
	return numbers, p.delim(']')
}

func (p *headerParser) delim(want json.Delim) error {
	token, err := p.dec.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%v where %v should be", token, want)
	}
	return nil
}

// check verifies that the tensor's shape fits its offsets.
func (e entry) check() error {
	want := e.dtype.size()
	if len(e.shape) > MaxRank {
		return fmt.Errorf("%d dimensions, at most %d", len(e.shape), MaxRank)
	}
	for i, d := range e.shape {
		if d < 0 || d > math.MaxInt32 {
			return fmt.Errorf("dimension %d is %d, at most %d", i, d, math.MaxInt32)
		}
		if d != 0 && want > math.MaxInt64/int64(d) {
			return fmt.Errorf("shape %v of %s overflows", e.shape, e.dtype)
		}
		want *= int64(d)
	}
	if have := e.end - e.begin; have != want {
		return fmt.Errorf("shape %v of %s needs %d bytes, data_offsets hold %d", e.shape, e.dtype, want, have)
	}
	return nil
}

// checkLayout sorts the tensors by position and verifies that they fill the data without
// gaps or overlaps.
func checkLayout(entries []entry, size int64) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	var at int64
	for _, e := range entries {
		switch {
		case e.begin < at:
			return fmt.Errorf("tensor %q begins at %d and overlaps the one before it, which ends at %d", e.name, e.begin, at)
		case e.begin > at:
			return fmt.Errorf("%d bytes in front of tensor %q belong to no tensor", e.begin-at, e.name)
		case e.end > size:
			return fmt.Errorf("tensor %q ends at %d, the data has %d bytes: the file is truncated", e.name, e.end, size)
		}
		at = e.end
	}
	if at < size {
		return fmt.Errorf("%d bytes follow the last tensor", size-at)
	}
	return nil
}
