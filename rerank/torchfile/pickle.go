package torchfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// The pickle opcodes (protocols 2 to 5) that plain data, tensors and dicts need.
const (
	opMark         = '('
	opStop         = '.'
	opPop          = '0'
	opFloat        = 'G'
	opInt          = 'J'
	opInt1         = 'K'
	opInt2         = 'M'
	opNone         = 'N'
	opPersistentID = 'Q'
	opReduce       = 'R'
	opUnicode      = 'X'
	opAppend       = 'a'
	opBuild        = 'b'
	opGlobal       = 'c'
	opAppends      = 'e'
	opGet          = 'h'
	opLongGet      = 'j'
	opPut          = 'q'
	opLongPut      = 'r'
	opSetItem      = 's'
	opTuple        = 't'
	opSetItems     = 'u'
	opEmptyTuple   = ')'
	opEmptyList    = ']'
	opEmptyDict    = '}'
	opProto        = 0x80
	opTuple1       = 0x85
	opTuple2       = 0x86
	opTuple3       = 0x87
	opTrue         = 0x88
	opFalse        = 0x89
	opLong1        = 0x8a
	opShortUnicode = 0x8c
	opStackGlobal  = 0x93
	opMemoize      = 0x94
	opFrame        = 0x95
)

// Limits of a pickle.
const (
	maxLong         = 16 // bytes of an integer
	maxValues       = 1 << 21
	greatestVersion = 5
)

type (
	// list, tuple, dict and global are values that a pickle can build. The others are nil,
	// bool, int64, float64, string, long, storage and *array.
	list  struct{ values []any }
	tuple []any
	dict  struct{ entries []entry }
	entry struct{ key, value any }
	// global is a Python name, in the form "module.name".
	global string
	// long holds the bytes of an integer of more than 64 bits.
	long string
	// mark is the value that the opcode MARK pushes.
	mark struct{}
)

// machine is the state of the stack machine that executes one pickle.
type machine struct {
	b     []byte
	at    int
	stack []any
	// pushed counts all values pushed so far.
	pushed int
	memo   map[uint32]any
	// persistent returns the object for a persistent id.
	persistent func(id tuple) (any, error)
}

// unpickle executes the pickle at the start of b and returns its value and its length.
func unpickle(b []byte, persistent func(id tuple) (any, error)) (value any, length int, err error) {
	m := &machine{b: b, memo: map[uint32]any{}, persistent: persistent}
	for {
		start := m.at
		op, err := m.take(1)
		if err != nil {
			return nil, 0, err
		}
		if op[0] == opStop {
			value, err = m.pop()
			return value, m.at, err
		}
		if m.pushed > maxValues {
			return nil, 0, fmt.Errorf("%w: the pickle makes more than %d values; save the weights alone", ErrFormat, maxValues)
		}
		if err := m.step(op[0]); err != nil {
			return nil, 0, fmt.Errorf("%w: byte %d of the pickle: %w", ErrFormat, start, err)
		}
	}
}

// step executes one opcode.
func (m *machine) step(op byte) error {
	v, ok, err := m.literal(op)
	if err != nil {
		return err
	}
	if ok {
		m.push(v)
		return nil
	}
	switch op {
	case opProto:
		return m.protocol()
	case opFrame:
		_, err := m.take(8)
		return err
	case opPop:
		_, err := m.pop()
		return err
	case opPut, opLongPut, opMemoize:
		return m.put(op)
	case opGet, opLongGet:
		return m.get(op)
	case opTuple, opTuple1, opTuple2, opTuple3:
		return m.tuple(op)
	case opAppend, opAppends, opSetItem, opSetItems:
		return m.fill(op)
	case opGlobal, opStackGlobal:
		return m.global(op)
	case opReduce:
		return m.reduce()
	case opBuild:
		return m.build()
	case opPersistentID:
		return m.persist()
	default:
		return fmt.Errorf("the opcode 0x%02x is not one of plain data and tensors; "+
			"save the weights alone with torch.save(model.state_dict(), path)", op)
	}
}

// literal returns the value that an opcode pushes. ok is false for opcodes that do
// something else.
func (m *machine) literal(op byte) (v any, ok bool, err error) {
	switch op {
	case opMark:
		return mark{}, true, nil
	case opNone:
		return nil, true, nil
	case opTrue, opFalse:
		return op == opTrue, true, nil
	case opEmptyTuple:
		return tuple{}, true, nil
	case opEmptyList:
		return &list{}, true, nil
	case opEmptyDict:
		return &dict{}, true, nil
	case opInt1, opInt2, opInt, opLong1:
		v, err = m.integer(op)
	case opFloat:
		var b []byte
		if b, err = m.take(8); err == nil {
			v = math.Float64frombits(binary.BigEndian.Uint64(b))
		}
	case opUnicode, opShortUnicode:
		v, err = m.text(op)
	default:
		return nil, false, nil
	}
	return v, true, err
}

// take consumes the next n bytes. It returns an error if there are fewer.
func (m *machine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.b)-m.at {
		return nil, fmt.Errorf("%w: the pickle ends at byte %d, before its end mark: the file is cut short, or not of PyTorch", ErrFormat, len(m.b))
	}
	m.at += n
	return m.b[m.at-n : m.at], nil
}

func (m *machine) integer(op byte) (any, error) {
	size := map[byte]int{opInt1: 1, opInt2: 2, opInt: 4, opLong1: 1}[op]
	b, err := m.take(size)
	if err != nil {
		return nil, err
	}
	switch op {
	case opInt1:
		return int64(b[0]), nil
	case opInt2:
		return int64(binary.LittleEndian.Uint16(b)), nil
	case opInt:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
	n := int(b[0])
	if n > maxLong {
		return nil, fmt.Errorf("an integer of %d bytes, at most %d", n, maxLong)
	}
	if b, err = m.take(n); err != nil {
		return nil, err
	}
	if n > 8 {
		return long(b), nil
	}
	var v int64
	for i, x := range b {
		v |= int64(x) << (8 * i)
	}
	if n > 0 && n < 8 && b[n-1] >= 0x80 {
		v -= 1 << (8 * n)
	}
	return v, nil
}

func (m *machine) text(op byte) (string, error) {
	size := 4
	if op == opShortUnicode {
		size = 1
	}
	b, err := m.take(size)
	if err != nil {
		return "", err
	}
	n := int64(b[0])
	if size == 4 {
		n = int64(binary.LittleEndian.Uint32(b))
	}
	if b, err = m.take(int(n)); err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("a text is not UTF-8")
	}
	return string(b), nil
}

func (m *machine) protocol() error {
	b, err := m.take(1)
	if err != nil {
		return err
	}
	if b[0] < 2 || b[0] > greatestVersion {
		return fmt.Errorf("pickle protocol %d, want 2 to %d", b[0], greatestVersion)
	}
	return nil
}

// line consumes the text up to a newline, in the form of the two names of GLOBAL.
func (m *machine) line() (string, error) {
	n := bytes.IndexByte(m.b[m.at:min(len(m.b), m.at+256)], '\n')
	if n < 0 {
		return "", fmt.Errorf("a name of Python without an end")
	}
	b, err := m.take(n + 1)
	return string(b[:len(b)-1]), err
}
