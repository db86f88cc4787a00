package derive

import (
	"encoding/json"
	"testing"
)

func TestSamePayload(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[1,"x",null]}`, `{ "b": [1, "x", null], "a": 1 }`, true},
		{``, `{}`, true},
		{`null`, `{}`, true},
		{`{"a":1}`, `{"a":1.0}`, false},
		{`{"a":1.0}`, `{"a":1e0}`, true},
		{`{"a":1.5}`, `{"a":2.5}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":true}`, `{"a":"true"}`, false},
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{`{`, `{}`, false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := SamePayload(json.RawMessage(pair[0]), json.RawMessage(pair[1])); got != c.same {
				t.Errorf("%s and %s: %t", pair[0], pair[1], got)
			}
		}
	}
}
