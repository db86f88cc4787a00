package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/safetensors"
)

// Vectors holds vectors read from a file or a collection, one in each row. They must
// not be used after Close.
type Vectors struct {
	rerank.Matrix
	// IDs holds the ids that came with the vectors, or nil.
	IDs []rerank.ID
	// Starts divides the rows among items of several vectors, as rerank.Items.Starts does. It is nil if
	// each has one.
	Starts []int32

	name    string           // for error messages
	digest  string           // set for a collection only
	missing adapters.Missing // set for a collection only
	closer  io.Closer
}

// OpenVectors opens a file of vectors: a two-dimensional .npy array, or a one-dimensional one
// for a single vector; a two-dimensional
// tensor of .safetensors (FILE#NAME, or the only tensor); or a column of lists of
// .parquet (FILE#NAME, or the only such column), with the ids of its column "id" if
// there is one. Numbers of 16, 32 or 64 bits become float32. float32 of .npy and
// .safetensors files is mapped, not copied. Values are not checked. OpenVectors
// returns ErrInput or the context's error.
func OpenVectors(ctx context.Context, spec string) (*Vectors, error) {
	path, name := splitSpec(spec)
	v, err := openVectors(ctx, path, name)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	v.name = spec
	if v.Rows < 1 || v.Cols < 1 {
		return nil, fmt.Errorf("%w: %s has %d rows of %d numbers; there is nothing in it", ErrInput, spec, v.Rows, v.Cols)
	}
	return v, nil
}

func openVectors(ctx context.Context, path, name string) (*Vectors, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".safetensors":
		m, err := safetensors.OpenMatrix(path, name)
		if err != nil {
			return nil, err
		}
		return &Vectors{Matrix: m.Matrix, closer: m}, nil
	case ".npy":
		if name != "" {
			return nil, fmt.Errorf("%s holds one array; leave out #%s", path, name)
		}
		m, err := npy.OpenVectors(path)
		if err != nil {
			return nil, err
		}
		return &Vectors{Matrix: m.Matrix, closer: m}, nil
	case ".parquet":
		v, err := openParquetVectors(ctx, path, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return v, nil
	default:
		return nil, fmt.Errorf("%s: vectors come from .npy, .safetensors or .parquet, not %q; np.save writes .npy", path, ext)
	}
}

// Forget gives the memory of vectors that are mapped from a file back to the system. They are read from the
// file again when they are next used.
func (v *Vectors) Forget() {
	if f, ok := v.closer.(interface{ Forget() }); ok {
		f.Forget()
	}
}

// Close frees the vectors. A second Close does nothing.
func (v *Vectors) Close() error {
	c := v.closer
	v.Matrix, v.closer = rerank.Matrix{}, nil
	if c == nil {
		return nil
	}
	return c.Close()
}

// splitSpec splits FILE#NAME. If a file's own name contains the # sign, the whole spec
// is the path.
func splitSpec(spec string) (path, name string) {
	i := strings.LastIndexByte(spec, '#')
	if i < 0 {
		return spec, ""
	}
	if _, err := os.Lstat(spec); err == nil {
		return spec, ""
	}
	return spec[:i], spec[i+1:]
}

// countNotFinite counts the rows with a number that is not finite. Unless permit is
// set, the first such row is an error.
func countNotFinite(name string, m rerank.Matrix, permit bool) (int, error) {
	rows := 0
	for r := range m.Rows {
		c := firstNotFinite(m.Row(r))
		if c < 0 {
			continue
		}
		if !permit {
			return 0, fmt.Errorf("%w: %s: row %d, column %d is %v; every number must be finite", ErrInput, name, r, c, m.Row(r)[c])
		}
		rows++
	}
	return rows, nil
}

// firstNotFinite returns the index of the first element that is not finite, or −1.
func firstNotFinite(v []float32) int {
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return i
		}
	}
	return -1
}

// FileDigest returns the SHA-256 of a file, in hexadecimal.
func FileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
