package torchfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/likenessdb/likeness/internal/half"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Python names that a pickle may use.
const (
	orderedDict      global = "collections.OrderedDict"
	rebuildTensor    global = "torch._utils._rebuild_tensor_v2"
	rebuildParameter global = "torch._utils._rebuild_parameter"
)

// storageTypes maps PyTorch's storage types to the size of a number in bytes. Storages of
// integers may appear beside the weights.
var storageTypes = map[global]int64{
	"torch.FloatStorage": 4, "torch.DoubleStorage": 8, "torch.HalfStorage": 2, "torch.BFloat16Storage": 2,
	"torch.LongStorage": 8, "torch.IntStorage": 4, "torch.ShortStorage": 2, "torch.CharStorage": 1,
	"torch.ByteStorage": 1, "torch.BoolStorage": 1,
}

// isKnown reports whether a pickle may use the name.
func (g global) isKnown() bool {
	return g == orderedDict || g == rebuildTensor || g == rebuildParameter || storageTypes[g] > 0
}

// storage identifies the memory that contains a tensor's numbers.
type storage struct {
	kind  global
	key   string
	count int64 // in numbers
}

// array is a tensor, which is a view of a storage.
type array struct {
	storage         storage
	offset          int64
	shape, strides  []int64
	elements, reach int64 // elements is the count of numbers; reach is the distance in the storage from the first number to the last, inclusive
}

// readStorage decodes a persistent id: ("storage", type, key, device, count).
func readStorage(id tuple) (storage, error) {
	var s storage
	if len(id) < 5 || id[0] != "storage" {
		return s, fmt.Errorf("a persistent id that is no storage")
	}
	kind, ok := id[1].(global)
	s.kind = kind
	if s.key, _ = id[2].(string); !ok || storageTypes[kind] == 0 || s.key == "" {
		return s, fmt.Errorf("a storage of type %s with the key %.80q", describeValue(id[1]), s.key)
	}
	count, ok := id[4].(int64)
	if !ok || count < 0 || count > maxDim {
		return s, fmt.Errorf("the storage %.80q has %s numbers, want 0 to %d", s.key, describeValue(id[4]), maxDim)
	}
	s.count = count
	return s, nil
}

// describeValue formats a value for a message. It does not expand tuples, which could be
// nested without end.
func describeValue(v any) string {
	switch v := v.(type) {
	case global:
		return string(v)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return fmt.Sprintf("%T", v)
	}
}

// reduce calls a known Python name with arguments.
func (m *machine) reduce() error {
	args, err := popType[tuple](m)
	if err != nil {
		return err
	}
	f, err := popType[global](m)
	if err != nil {
		return err
	}
	switch f {
	case orderedDict:
		if len(args) != 0 {
			return fmt.Errorf("an ordered dict with arguments")
		}
		m.push(&dict{})
		return nil
	case rebuildTensor:
		a, err := newArray(args)
		m.push(a)
		return err
	case rebuildParameter:
		if len(args) > 0 {
			if a, ok := args[0].(*array); ok {
				m.push(a)
				return nil
			}
		}
		return fmt.Errorf("a parameter without a tensor")
	default:
		return fmt.Errorf("%q is called, and is no function", string(f))
	}
}

// newArray decodes the arguments of a tensor (storage, offset, shape, strides, …). It
// checks that the view lies within its storage and has no more elements than the storage.
func newArray(args tuple) (*array, error) {
	if len(args) < 4 {
		return nil, fmt.Errorf("a tensor of %d arguments", len(args))
	}
	s, isStorage := args[0].(storage)
	offset, isInt := args[1].(int64)
	shape, isShape := dimensions(args[2])
	strides, isStrides := dimensions(args[3])
	if !isStorage || !isInt || !isShape || !isStrides || offset < 0 || len(shape) != len(strides) {
		return nil, fmt.Errorf("a tensor of unexpected arguments")
	}
	a := &array{storage: s, offset: offset, shape: shape, strides: strides, elements: 1, reach: 1}
	for i, n := range shape { // every factor is below 2³¹, so nothing overflows
		a.elements *= n
		a.reach += (n - 1) * strides[i]
		if n < 1 || a.elements > s.count || a.reach > s.count {
			return nil, a.outside()
		}
	}
	if a.reach > s.count-offset {
		return nil, a.outside()
	}
	return a, nil
}

func (a *array) outside() error {
	return fmt.Errorf("a tensor of shape %v and strides %v at %d does not lie in its storage %q of %d numbers",
		a.shape, a.strides, a.offset, a.storage.key, a.storage.count)
}

const (
	maxDims = 8
	maxDim  = math.MaxInt32
)

func dimensions(v any) ([]int64, bool) {
	t, ok := v.(tuple)
	if !ok || len(t) > maxDims {
		return nil, false
	}
	dims := make([]int64, len(t))
	for i, d := range t {
		if dims[i], ok = d.(int64); !ok || dims[i] < 0 || dims[i] > maxDim {
			return nil, false
		}
	}
	return dims, true
}

// load reads an array. The total of loaded numbers is limited by the file's size, so that
// many views of one storage cannot exhaust the memory.
func (f *File) load(a *array) (tensor.Tensor, error) {
	read := floatReader(a.storage.kind)
	if read == nil {
		return tensor.Tensor{}, fmt.Errorf("%w: it is of type %s; weights are of float, half, bfloat16 or double", ErrFormat, a.storage.kind)
	}
	if f.loaded += a.elements; f.loaded > f.size/2 {
		return tensor.Tensor{}, fmt.Errorf("%w: its tensors are together larger than the file of %d bytes", ErrFormat, f.size)
	}
	b, err := f.bytes(a.storage)
	if err != nil {
		return tensor.Tensor{}, err
	}
	t := tensor.Tensor{Data: make([]float32, a.elements)}
	for _, n := range a.shape {
		t.Shape = append(t.Shape, int(n))
	}
	size := storageTypes[a.storage.kind]
	index := make([]int64, len(a.shape))
	at := a.offset
	for i := range t.Data {
		t.Data[i] = read(b[at*size:])
		if x := float64(t.Data[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			return t, fmt.Errorf("%w: element %d is %v; every number must be finite and within float32", ErrFormat, i, x)
		}
		for d := len(index) - 1; d >= 0; d-- { // advance the index, last dimension first
			index[d]++
			at += a.strides[d]
			if index[d] < a.shape[d] {
				break
			}
			at -= index[d] * a.strides[d]
			index[d] = 0
		}
	}
	return t, nil
}

// bytes returns the content of a storage. It keeps the storage that was read last.
func (f *File) bytes(s storage) ([]byte, error) {
	if s == f.last && f.lastBytes != nil {
		return f.lastBytes, nil
	}
	b, err := f.storage(s)
	if err == nil {
		f.last, f.lastBytes = s, b
	}
	return b, err
}

// floatReader returns a function that decodes a number of the given storage type, or nil
// for integers.
func floatReader(kind global) func(b []byte) float32 {
	switch kind {
	case "torch.FloatStorage":
		return func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	case "torch.DoubleStorage":
		return func(b []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b))) }
	case "torch.HalfStorage":
		return func(b []byte) float32 { return half.Float16(binary.LittleEndian.Uint16(b)) }
	case "torch.BFloat16Storage":
		return func(b []byte) float32 { return half.BFloat16(binary.LittleEndian.Uint16(b)) }
	default:
		return nil
	}
}
