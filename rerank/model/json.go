package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth limits how deeply the JSON of a header or a config.json may be nested.
const maxDepth = 16

// decodeStrict decodes a JSON object. It refuses unknown and repeated keys.
func decodeStrict(b []byte, into any) error {
	if err := checkJSON(b); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// canonicalJSON rewrites an object without blanks and with sorted keys, so that equal
// content has equal bytes. Numbers keep their spelling.
func canonicalJSON(b json.RawMessage) (json.RawMessage, error) {
	if err := checkJSON(b); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// checkJSON verifies that b is a single value, nested at most maxDepth deep, without
// repeated keys.
func checkJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := checkValue(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func checkValue(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	seen := map[string]bool{}
	for dec.More() {
		if delim == '{' {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			if seen[key] {
				return fmt.Errorf("%q occurs twice", key)
			}
			seen[key] = true
		}
		if err := checkValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
