// Package torchfile reads tensors from files of torch.save: a state dict, or a checkpoint
// that contains state dicts, in the zip format of PyTorch 1.6 and later or in the older
// format.
//
// Such a file is a pickle, which is a program for a stack machine that can call any Python
// function. This reader calls none. It knows the opcodes of plain data and the few names
// for tensors, storages and ordered dicts, and refuses everything else by name. Lengths are
// checked against the file's size before memory is allocated.
package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrFormat: the bytes are not a file of torch.save, are damaged, or contain objects other
// than plain data and tensors.
var ErrFormat = errors.New("PyTorch file is not valid")

// maxPickle limits the length of a pickle. The pickle of 10,000 tensors has 2 MiB.
const maxPickle = 8 << 20

// Dict is a dict that contains tensors, such as a state dict.
type Dict struct {
	// Path is the keys of the dicts around it, joined by dots. It is empty for a bare state
	// dict, and "model_state_dict" in a typical checkpoint.
	Path string

	tensors map[string]*array
	file    *File
}

// Names returns the names of the dict's tensors in ascending order.
func (d *Dict) Names() []string { return sortedKeys(d.tensors) }

// Load reads one tensor as float32. It returns ErrFormat if the tensor does not fit its
// storage, consists of integers, or contains a number that is not finite.
func (d *Dict) Load(name string) (tensor.Tensor, error) {
	a, ok := d.tensors[name]
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("%w: it has no tensor %q", ErrFormat, name)
	}
	t, err := d.file.load(a)
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", name, err)
	}
	return t, nil
}

// File is an open PyTorch file. It is not safe for concurrent use.
type File struct {
	// Dicts lists the dicts that contain tensors, in the order of the file.
	Dicts []*Dict

	size   int64
	loaded int64 // number of elements loaded so far
	// storage returns a storage's bytes, and checks that there are enough of them.
	storage   func(s storage) ([]byte, error)
	last      storage
	lastBytes []byte
	closer    io.Closer
}

// Open opens a file, which the caller must Close. It returns ErrFormat or the system's
// error.
func Open(path string) (*File, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	file, err := Read(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	file.closer = f
	return file, nil
}

// Close closes the file if Open opened it.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Read reads the structure of a file of the given size from r. Tensors are read from r when
// they are loaded. Read returns ErrFormat, or the error of r.
func Read(r io.ReaderAt, size int64) (*File, error) {
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f := &File{size: size}
	open := f.openLegacy
	if bytes.Equal(magic[:], []byte("PK\x03\x04")) {
		open = f.openZip
	}
	root, err := open(r)
	if err != nil {
		return nil, err
	}
	f.collect(nil, root, map[*dict]bool{})
	if len(f.Dicts) == 0 {
		return nil, fmt.Errorf("%w: no dict in it holds a tensor; save one with torch.save(model.state_dict(), path)", ErrFormat)
	}
	return f, nil
}

// Limits on the path of a dict.
const (
	maxNesting = 16
	maxName    = 200 // length of one key in a path
)

// collect finds the dicts with tensors. It visits each dict once, so that cycles end.
func (f *File) collect(path []string, v any, seen map[*dict]bool) {
	d, ok := v.(*dict)
	if !ok || seen[d] || len(path) > maxNesting {
		return
	}
	seen[d] = true
	found := &Dict{tensors: map[string]*array{}, file: f}
	for _, e := range d.entries {
		if a, ok := e.value.(*array); ok {
			found.tensors[fmt.Sprint(e.key)] = a
		}
	}
	if len(found.tensors) > 0 {
		found.Path = strings.Join(path, ".")
		f.Dicts = append(f.Dicts, found)
	}
	for _, e := range d.entries {
		if _, ok := e.value.(*dict); ok {
			f.collect(append(path, fmt.Sprintf("%.*s", maxName, fmt.Sprint(e.key))), e.value, seen)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
