package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// matrixFile writes tensors, given as header fragments and data, to a file.
func matrixFile(t *testing.T, pad string, tensors ...struct {
	name, dtype, shape string
	data               []byte
},
) string {
	t.Helper()
	var header []string
	var data bytes.Buffer
	for _, e := range tensors {
		at := data.Len()
		data.Write(e.data)
		header = append(header, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, e.name, e.dtype, e.shape, at, data.Len()))
	}
	text := "{" + strings.Join(header, ",") + "}" + pad
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, append(append(b, text...), data.Bytes()...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

type raw = struct {
	name, dtype, shape string
	data               []byte
}

func TestOpenMatrix(t *testing.T) {
	le := binary.LittleEndian
	f32 := le.AppendUint32(le.AppendUint32(nil, math.Float32bits(0.5)), math.Float32bits(-2))
	f64 := le.AppendUint64(le.AppendUint64(nil, math.Float64bits(0.5)), math.Float64bits(-2))
	for dtype, data := range map[string][]byte{"F32": f32, "F64": f64, "F16": {0x00, 0x38, 0x00, 0xc0}, "BF16": {0x00, 0x3f, 0x00, 0xc0}} {
		for pad := range 4 { // data aligned and not
			path := matrixFile(t, strings.Repeat(" ", pad), raw{"other", "F32", "[1]", f32[:4]}, raw{"x", dtype, "[1,2]", data})
			m, err := safetensors.OpenMatrix(path, "x")
			if err != nil {
				t.Fatalf("%s: %v", dtype, err)
			}
			if m.Rows != 1 || m.Cols != 2 || !slices.Equal(m.Row(0), []float32{0.5, -2}) {
				t.Errorf("%s: %v", dtype, m.Matrix)
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	if m, err := safetensors.OpenMatrix(matrixFile(t, "", raw{"only", "F32", "[2,1]", f32}), ""); err != nil || m.Rows != 2 {
		t.Errorf("the only tensor: %v", err)
	}
}

func TestOpenMatrixRefuses(t *testing.T) {
	zeros := make([]byte, 16)
	two := matrixFile(t, "", raw{"a", "F32", "[2,1]", zeros[:8]}, raw{"b", "I64", "[1,1]", zeros[:8]}, raw{"c", "F32", "[2]", zeros[:8]})
	for _, c := range []struct {
		name, want string
		is         error
	}{
		{"", `name one of them`, tensor.ErrShape},
		{"d", `there is no tensor "d"; there are "a" "b" "c"`, tensor.ErrShape},
		{"b", "type I64", tensor.ErrShape},
		{"c", "two dimensions", tensor.ErrShape},
	} {
		if _, err := safetensors.OpenMatrix(two, c.name); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: want %q, have: %v", c.name, c.want, err)
		}
	}
	whole, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short.safetensors")
	for n := range whole {
		if err := os.WriteFile(short, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := safetensors.OpenMatrix(short, "a"); !errors.Is(err, safetensors.ErrFormat) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}
