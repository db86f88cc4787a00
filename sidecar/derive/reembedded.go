package derive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
)

// SourceField is the payload field by which a companion marks a row that holds a vector of the new
// model, and no longer what the bridge makes of the old vector. It holds the row's SourceDigest from
// when the text was embedded.
const SourceField = "likeness_embedded"

// sourceBytes is the length of a source digest, before it is written as hexadecimal digits.
const sourceBytes = 16

// SourceDigest hashes what an item's new vector stands for: the text that was embedded, and the vector
// that the old model made. A new vector is out of date once either has changed.
func SourceDigest(old []float32, text string) string {
	h := sha256.New()
	buffer := make([]byte, 0, 4*len(old))
	for _, x := range old {
		buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
	}
	_, _ = h.Write(buffer)
	_, _ = h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:sourceBytes])
}

// TextOf returns the text of a payload field. It returns "" if the payload has no such field, or
// another type in it.
func TextOf(payload json.RawMessage, field string) string {
	var text string
	_ = json.Unmarshal(fieldsOf(payload)[field], &text)
	return text
}

// MarkOf returns the source digest with which a companion's payload is marked, or "".
func MarkOf(payload json.RawMessage) string { return TextOf(payload, SourceField) }

// Mark returns a copy of a payload with the mark of a source digest.
func Mark(payload json.RawMessage, source string) json.RawMessage {
	fields := fieldsOf(payload)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	fields[SourceField] = json.RawMessage(`"` + source + `"`)
	marked, _ := json.Marshal(fields) // never fails: every field was read as JSON, and a digest needs no escape
	return marked
}

// WithoutMark returns a payload without its mark. It returns the payload itself if it has none.
func WithoutMark(payload json.RawMessage) json.RawMessage {
	if !bytes.Contains(payload, []byte(SourceField)) {
		return payload
	}
	fields := fieldsOf(payload)
	if _, marked := fields[SourceField]; !marked {
		return payload
	}
	delete(fields, SourceField)
	rest, err := json.Marshal(fields)
	if err != nil {
		return payload
	}
	return rest
}

// fieldsOf returns the fields of a payload, or nil if it is no JSON object.
func fieldsOf(payload json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return nil
	}
	return fields
}
