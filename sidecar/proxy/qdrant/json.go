package qdrant

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/likenessdb/likeness/rerank"
)

// member is a key of a JSON object with its value as it came.
type member struct {
	key   string
	value json.RawMessage
}

// object is a JSON object whose keys keep their order and whose values keep
// their bytes, so that no number is rounded on its way.
type object []member

var errObject = errors.New("not one JSON object with different keys")

// readObject reads an object; a key that comes twice is an error.
func readObject(b []byte) (object, error) {
	if !json.Valid(b) {
		return nil, errObject
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errObject
	}
	var o object
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if o.get(name) != nil {
			return nil, errObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		o = append(o, member{name, value})
	}
	return o, nil
}

// get is the value of a key; nil if there is none.
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

// unknown reports whether there is a key other than those.
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

// with replaces a value, or adds it.
func (o object) with(key string, value json.RawMessage) object {
	for i := range o {
		if o[i].key == key {
			o[i].value = value
			return o
		}
	}
	return append(o, member{key, value})
}

// without removes a key.
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

// quoted is a JSON string; < and > stay as they are.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can be
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// readArray reads an array; its elements keep their bytes.
func readArray(b []byte) (all []json.RawMessage, ok bool) {
	return all, len(b) > 0 && b[0] == '[' && json.Unmarshal(b, &all) == nil
}

// readObjects reads an array of objects.
func readObjects(b []byte) (all []object, ok bool) {
	elements, ok := readArray(b)
	for _, e := range elements {
		o, err := readObject(e)
		if err != nil {
			return nil, false
		}
		all = append(all, o)
	}
	return all, ok
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

// readVector reads an array of numbers that float32 can hold.
func readVector(b []byte) (v []float32, ok bool) {
	elements, ok := readArray(b)
	if !ok || len(elements) == 0 {
		return nil, false
	}
	for _, e := range elements {
		f, err := strconv.ParseFloat(string(e), 32)
		if err != nil {
			return nil, false
		}
		v = append(v, float32(f))
	}
	return v, true
}

// readCount reads a whole number from 0; absent is the default.
func (o object) readCount(key string, absent uint64) (n uint64, ok bool) {
	if !o.has(key) {
		return absent, true
	}
	n, err := strconv.ParseUint(string(o.get(key)), 10, 64)
	return n, err == nil
}

// idText is an id as JSON.
func idText(id rerank.ID) json.RawMessage {
	if n, ok := id.Uint64(); ok {
		return strconv.AppendUint(nil, n, 10)
	}
	text, _ := id.Text()
	return quoted(text)
}

// scoreText is a score as Qdrant writes it: the shortest form, with a point or
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
