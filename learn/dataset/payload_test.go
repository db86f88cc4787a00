package dataset_test

import (
	"encoding/json"
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
)

// TestPayloadText reads scalar fields by key and by path.
func TestPayloadText(t *testing.T) {
	const payload = `{"kind": "book", "shelf": {"number": 7, "by.author": true}, "a.b": "whole key", "tags": ["x"], "none": null}`
	for name, want := range map[string]string{
		"kind": "book", "shelf.number": "7", "shelf.by.author": "true", "a.b": "whole key", "tags": "", "none": "", "shelf": "", "missing": "", "kind.of": "", "": "",
	} {
		if got := dataset.PayloadText(json.RawMessage(payload), name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := dataset.PayloadText(nil, "kind"); got != "" {
		t.Errorf("no payload: %q", got)
	}
}
