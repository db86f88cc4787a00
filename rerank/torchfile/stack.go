package torchfile

import (
	"encoding/binary"
	"fmt"
)

// push pushes a value and counts it. The count is limited, so a pickle cannot build more
// values than a checkpoint of many thousand tensors needs.
func (m *machine) push(v any) {
	m.pushed++
	m.stack = append(m.stack, v)
}

func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, fmt.Errorf("%w: the stack is empty", ErrFormat)
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popType pops a value, which must have type T.
func popType[T any](m *machine) (T, error) {
	v, err := m.pop()
	t, ok := v.(T)
	if err == nil && !ok {
		err = fmt.Errorf("a %T stands where a %T should", v, t)
	}
	return t, err
}

// popMark pops the values above the last mark, and the mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if m.stack[i] == (mark{}) {
			values := append([]any{}, m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return values, nil
		}
	}
	return nil, fmt.Errorf("the mark is missing")
}

// index reads the number of a memo entry, in one byte if short, otherwise in four.
func (m *machine) index(short bool) (uint32, error) {
	if short {
		b, err := m.take(1)
		if err != nil {
			return 0, err
		}
		return uint32(b[0]), nil
	}
	b, err := m.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (m *machine) put(op byte) error {
	at, err := uint32(len(m.memo)), error(nil)
	if op != opMemoize {
		at, err = m.index(op == opPut)
	}
	if err != nil {
		return err
	}
	v, err := m.pop()
	if err != nil {
		return err
	}
	m.memo[at] = v
	m.push(v)
	return nil
}

func (m *machine) get(op byte) error {
	at, err := m.index(op == opGet)
	if err != nil {
		return err
	}
	v, ok := m.memo[at]
	if !ok {
		return fmt.Errorf("the memo has no entry %d", at)
	}
	m.push(v)
	return nil
}

func (m *machine) tuple(op byte) error {
	if op == opTuple {
		values, err := m.popMark()
		m.push(tuple(values))
		return err
	}
	n := int(op-opTuple1) + 1
	if len(m.stack) < n {
		return fmt.Errorf("the stack has %d values of a tuple of %d", len(m.stack), n)
	}
	values := append(tuple{}, m.stack[len(m.stack)-n:]...)
	m.stack = m.stack[:len(m.stack)-n]
	m.push(values)
	return nil
}

// fill appends popped values to the list or dict on top of the stack.
func (m *machine) fill(op byte) error {
	var values []any
	var err error
	switch op {
	case opAppends, opSetItems:
		values, err = m.popMark()
	case opAppend:
		values = make([]any, 1)
		values[0], err = m.pop()
	case opSetItem:
		values = make([]any, 2)
		if values[1], err = m.pop(); err == nil {
			values[0], err = m.pop()
		}
	}
	if err != nil {
		return err
	}
	if op == opAppend || op == opAppends {
		l, err := popType[*list](m)
		if err != nil {
			return err
		}
		l.values = append(l.values, values...)
		m.push(l)
		return nil
	}
	d, err := popType[*dict](m)
	if err != nil {
		return err
	}
	m.push(d)
	return d.set(values)
}

// set adds entries. values alternates between keys and values.
func (d *dict) set(values []any) error {
	if len(values)%2 != 0 {
		return fmt.Errorf("a key without a value")
	}
	for i := 0; i < len(values); i += 2 {
		switch values[i].(type) {
		case string, int64:
		default:
			return fmt.Errorf("a key of a dict is a %T; keys are texts or integers", values[i])
		}
		d.entries = append(d.entries, entry{values[i], values[i+1]})
	}
	return nil
}

func (m *machine) global(op byte) error {
	var module, name string
	var err error
	if op == opGlobal {
		if module, err = m.line(); err == nil {
			name, err = m.line()
		}
	} else {
		if name, err = popType[string](m); err == nil {
			module, err = popType[string](m)
		}
	}
	if err != nil {
		return err
	}
	g := global(module + "." + name)
	if !g.isKnown() {
		return fmt.Errorf("it calls for %.100q, which is none of PyTorch's tensors and storages; nothing was run. "+
			"Save the weights alone with torch.save(model.state_dict(), path)", string(g))
	}
	m.push(g)
	return nil
}

// build sets an object's state. PyTorch uses it for the _metadata of a state dict, which
// contains no tensors and is ignored.
func (m *machine) build() error {
	if _, err := m.pop(); err != nil {
		return err
	}
	d, err := popType[*dict](m)
	if err == nil {
		m.push(d)
	}
	return err
}

func (m *machine) persist() error {
	id, err := popType[tuple](m)
	if err != nil {
		return err
	}
	if m.persistent == nil {
		return fmt.Errorf("a persistent id where there is none")
	}
	v, err := m.persistent(id)
	if err != nil {
		return err
	}
	m.push(v)
	return nil
}
