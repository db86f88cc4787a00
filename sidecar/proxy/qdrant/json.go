package qdrant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/likenessdb/likeness/internal/jsonwalk"
	"github.com/likenessdb/likeness/rerank"
)

// member is a key of a JSON object, with its value unparsed.
type member struct {
	key   string
	value json.RawMessage
}

// object is a JSON object whose keys keep their order and whose values keep their bytes, so that no
// number is rounded.
type object []member

var (
	errObject = errors.New("not one JSON object with different keys")
	errKeys   = fmt.Errorf("a JSON object with more than %d keys", maxKeys)
)

// maxKeys limits the keys of an object. Objects with more keys are unknown to the proxy, since no
// object of Qdrant's searches and answers has as many; their searches pass.
const maxKeys = 64

// readDocument validates b as JSON in one pass, and returns its object.
func readDocument(b []byte) (object, error) {
	if !json.Valid(b) {
		return nil, errObject
	}
	return readObject(b)
}

// readObject reads an object from text that readDocument has validated. The values are slices of b.
// A repeated key is an error, and so are more than maxKeys keys.
func readObject(b []byte) (o object, err error) {
	s := jsonwalk.New(b)
	whole := s.Object(func(key string) bool {
		if len(o) == maxKeys {
			err = errKeys
			return false
		}
		value, ok := s.Value()
		if !ok || o.get(key) != nil {
			return false
		}
		o = append(o, member{key, value})
		return true
	})
	if !whole {
		return nil, cmp.Or(err, errObject)
	}
	return o, nil
}

// get returns the value of a key, or nil without the key.
func (o object) get(key string) json.RawMessage {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// has reports whether a key has a value other than null.
func (o object) has(key string) bool {
	v := o.get(key)
	return v != nil && string(v) != "null"
}

// unknown reports whether the object has a key that is not among the given ones.
func (o object) unknown(keys ...string) bool {
	for _, m := range o {
		known := false
		for _, k := range keys {
			known = known || k == m.key
		}
		if !known {
			return true
		}
	}
	return false
}

// with returns the object with the key's value replaced or added.
func (o object) with(key string, value json.RawMessage) object {
	for i := range o {
		if o[i].key == key {
			o[i].value = value
			return o
		}
	}
	return append(o, member{key, value})
}

// without returns the object without a key.
func (o object) without(key string) object {
	out := o[:0:0]
	for _, m := range o {
		if m.key != key {
			out = append(out, m)
		}
	}
	return out
}

func (o object) bytes() []byte {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(m.key)...), ':'), m.value...)
	}
	return append(b, '}')
}

// quoted returns s as a JSON string, in which < and > are not escaped.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// errElements says that an array has more elements than its reader allows.
var errElements = errors.New("too many elements in a JSON array")

// readArray reads an array of at most the given number of elements. They are slices of b.
func readArray(b []byte, most int) (elements []json.RawMessage, err error) {
	s := jsonwalk.New(b)
	whole := s.Array(func() bool {
		if len(elements) == most {
			err = errElements
			return false
		}
		value, ok := s.Value()
		elements = append(elements, value)
		return ok
	})
	if !whole {
		return nil, cmp.Or(err, errArray)
	}
	return elements, nil
}

var errArray = errors.New("not a JSON array of the elements that are expected")

// readObjects reads an array of at most the given number of objects.
func readObjects(b []byte, most int) (all []object, err error) {
	elements, err := readArray(b, most)
	for i := 0; i < len(elements) && err == nil; i++ {
		var o object
		o, err = readObject(elements[i])
		all = append(all, o)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachObject calls f with each object of an array in turn.
func eachObject(b []byte, f func(o object) error) (err error) {
	s := jsonwalk.New(b)
	whole := s.Array(func() bool {
		value, ok := s.Value()
		if !ok {
			return false
		}
		var o object
		if o, err = readObject(value); err == nil {
			err = f(o)
		}
		return err == nil
	})
	if !whole {
		return cmp.Or(err, errArray)
	}
	return nil
}

func writeArray(all []json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, e := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(b, ']')
}

// maxDim is Qdrant's limit on the dimension of a vector.
const maxDim = 1 << 16

// readVector reads an array of numbers that float32 can hold. It reports false for any
// other value, for an empty array, and for more than maxDim numbers.
func readVector(b []byte) (v []float32, ok bool) {
	s := jsonwalk.New(b)
	if s.Next() != '[' {
		return nil, false
	}
	numbers := bytes.Count(b, []byte{','}) + 1
	if numbers > maxDim {
		return nil, false
	}
	v = make([]float32, 0, numbers)
	ok = s.Array(func() bool {
		number, ok := s.Value()
		if !ok || !isNumber(number) {
			return false
		}
		f, err := strconv.ParseFloat(string(number), 32)
		v = append(v, float32(f))
		return err == nil
	})
	return v, ok && len(v) > 0
}

// readVectors reads an array of vectors of one length, at most rerank.MaxQueryVectors. It returns no rows
// if b is anything else.
func readVectors(b []byte) (m rerank.Matrix) {
	s := jsonwalk.New(b)
	if s.Next() != '[' {
		return m
	}
	whole := s.Array(func() bool {
		value, ok := s.Value()
		if !ok {
			return false
		}
		v, ok := readVector(value)
		return ok && appendVector(&m, v)
	})
	if !whole {
		return rerank.Matrix{}
	}
	return m
}

// readCount reads a non-negative integer. Without the key it returns absent.
func (o object) readCount(key string, absent uint64) (n uint64, ok bool) {
	if !o.has(key) {
		return absent, true
	}
	n, err := strconv.ParseUint(string(o.get(key)), 10, 64)
	return n, err == nil
}

// idText returns an id as JSON.
func idText(id rerank.ID) json.RawMessage {
	if n, ok := id.Uint64(); ok {
		return strconv.AppendUint(nil, n, 10)
	}
	text, _ := id.Text()
	return quoted(text)
}

// scoreText returns a score in the form that Qdrant writes: the shortest decimal, with a point or
// an exponent.
func scoreText(f float32) json.RawMessage {
	b := strconv.AppendFloat(nil, float64(f), 'f', -1, 32)
	if len(b) > 18 {
		b = strconv.AppendFloat(nil, float64(f), 'e', -1, 32)
	}
	if !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b
}
