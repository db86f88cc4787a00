package maxsim

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/npy"
)

// ErrVectors: the files of behavioural vectors are damaged, or belong to another model.
var ErrVectors = errors.New("behavioural vectors are not valid")

// Suffixes of the files of behavioural vectors. The first file holds one vector per row,
// the second the id of each vector's item as JSON, one per line. The vectors of an item are
// adjacent.
const (
	vectorsFile = ".vectors.npy"
	ownersFile  = ".owners.jsonl"
)

// Beside returns the path prefix of the files of a model's behavioural vectors: the model's
// path without its extension.
func Beside(model string) string { return strings.TrimSuffix(model, filepath.Ext(model)) }

// Vectors holds the behavioural vectors of a collection's items. The items' own vectors are
// not included. It is read-only and safe for concurrent use. It must not be used after
// Close, because the matrix is a mapped file.
type Vectors struct {
	rerank.Matrix
	// Digest is the SHA-256 of vectors and ids, in hex, as in Config.Vectors.
	Digest string

	file *npy.Matrix
	rows map[rerank.ID]span
}

// span is the range of rows of an item.
type span struct{ from, to int32 }

// OpenVectors opens the files with the given path prefix and reads them once to verify the
// digest. want is Config.Vectors of the model. Besides the mapped vectors it uses about
// eighty bytes per item. It returns ErrVectors or the system's error.
func OpenVectors(name, want string) (_ *Vectors, err error) {
	file, err := npy.Open(name + vectorsFile)
	if err != nil {
		return nil, fmt.Errorf("opening behavioural vectors: %w", err)
	}
	v := &Vectors{Matrix: file.Matrix, file: file, rows: map[rerank.ID]span{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.Close())
		}
	}()
	owners, _, err := regular.Open(name + ownersFile)
	if err != nil {
		return nil, fmt.Errorf("opening behavioural vectors: %w", err)
	}
	defer owners.Close()
	if err := v.read(bufio.NewScanner(owners)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrVectors, name+ownersFile, err)
	}
	if v.Digest != want {
		return nil, fmt.Errorf("%w: %s and %s are of version %.16s, the model of %.16s; a model, its vectors and its owners belong together",
			ErrVectors, name+vectorsFile, name+ownersFile, v.Digest, want)
	}
	return v, nil
}

// read reads the owner of each row and computes the digest.
func (v *Vectors) read(lines *bufio.Scanner) error {
	sum, row := sha256.New(), 0
	var last rerank.ID
	for ; lines.Scan(); row++ {
		if row == v.Rows {
			return fmt.Errorf("it has more lines than the %d vectors", v.Rows)
		}
		var id rerank.ID
		if err := id.UnmarshalJSON(lines.Bytes()); err != nil || id.IsZero() {
			return fmt.Errorf("line %d: %.80q is no id; want a 64-bit integer or a string", row+1, lines.Bytes())
		}
		if err := rerank.CheckFinite(fmt.Sprintf("vector %d", row), v.Row(row)); err != nil {
			return err
		}
		s, known := v.rows[id]
		if known && id != last {
			return fmt.Errorf("line %d: item %s comes again after another; the vectors of an item lie together", row+1, id)
		}
		if !known {
			s.from = int32(row)
		}
		s.to, last = int32(row+1), id
		v.rows[id] = s
		if err := digestVector(sum, id, v.Row(row)); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if row != v.Rows {
		return fmt.Errorf("it has %d lines for %d vectors", row, v.Rows)
	}
	v.Digest = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// Of returns the behavioural vectors of an item; a matrix without rows if it has none.
func (v *Vectors) Of(id rerank.ID) rerank.Matrix {
	s := v.rows[id]
	return v.Slice(int(s.from), int(s.to))
}

// Behind interleaves items' own vectors with their behavioural vectors: item i gets the
// rows starts[i]:starts[i+1] of all, beginning with its own vector.
func (v *Vectors) Behind(own rerank.Matrix, ids []rerank.ID) (all rerank.Matrix, starts []int32) {
	all = rerank.Matrix{Cols: own.Cols}
	starts = make([]int32, 1, len(ids)+1)
	for i, id := range ids {
		more := v.Of(id)
		all.Data = append(append(all.Data, own.Row(i)...), more.Data...)
		all.Rows += 1 + more.Rows
		starts = append(starts, int32(all.Rows))
	}
	return all, starts
}

// TextIDs reports whether the items' ids are strings.
func (v *Vectors) TextIDs() bool {
	for id := range v.rows {
		_, text := id.Text()
		return text
	}
	return false
}

// Close unmaps the vectors.
func (v *Vectors) Close() error {
	v.Matrix, v.rows = rerank.Matrix{}, nil
	return v.file.Close()
}

// digestVector adds a vector and its item's id to a digest.
func digestVector(sum hash.Hash, id rerank.ID, vector []float32) error {
	b, err := id.MarshalJSON()
	if err != nil {
		return err
	}
	b = append(b, '\n')
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	_, err = sum.Write(b)
	return err
}

// VectorsWriter writes the files that OpenVectors reads. The files appear when Close
// succeeds. It is not safe for concurrent use.
type VectorsWriter struct {
	name   string
	matrix *npy.Writer
	owners *os.File // nil once closed
	lines  *bufio.Writer
	sum    hash.Hash
}

// CreateVectors starts writing files with the given path prefix, for vectors of the given
// dimension.
func CreateVectors(name string, dim int) (*VectorsWriter, error) {
	owners, err := os.Create(name + ownersFile + ".part")
	if err != nil {
		return nil, err
	}
	w := &VectorsWriter{name: name, owners: owners, lines: bufio.NewWriter(owners), sum: sha256.New()}
	if w.matrix, err = npy.Create(name+vectorsFile, dim); err != nil {
		return nil, errors.Join(err, owners.Close(), os.Remove(owners.Name()))
	}
	return w, nil
}

// Append adds all vectors of an item.
func (w *VectorsWriter) Append(id rerank.ID, vectors rerank.Matrix) error {
	line, err := json.Marshal(id)
	if err != nil {
		return err
	}
	for r := range vectors.Rows {
		if _, err := w.lines.Write(append(line, '\n')); err != nil {
			return err
		}
		if err := digestVector(w.sum, id, vectors.Row(r)); err != nil {
			return err
		}
	}
	return w.matrix.Append(vectors)
}

// Close completes the files and returns their digest.
func (w *VectorsWriter) Close() (digest string, err error) {
	if err := w.lines.Flush(); err != nil {
		return "", errors.Join(err, w.Abort())
	}
	if err := w.matrix.Close(); err != nil {
		return "", errors.Join(err, w.Abort())
	}
	owners := w.owners
	w.owners = nil
	if err := atomicfile.Rename(disk.OS{}, owners, w.name+ownersFile); err != nil {
		return "", err
	}
	return hex.EncodeToString(w.sum.Sum(nil)), nil
}

// Abort stops writing and removes the unfinished files. After Close it does nothing.
func (w *VectorsWriter) Abort() error {
	if w.owners == nil {
		return nil
	}
	owners := w.owners
	w.owners = nil
	return errors.Join(owners.Close(), os.Remove(owners.Name()), w.matrix.Abort())
}
