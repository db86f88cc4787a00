package events

import (
	"bytes"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// FuzzDecode reads arbitrary bytes as the body of a record: what can be read is written the same.
func FuzzDecode(f *testing.F) {
	m := Impression{Time: time.UnixMilli(1), Vector: []float32{1, 2}, Text: "t", User: "u", Version: "v", First: 1, Items: []Item{{rerank.UintID(1), 2, experiment.Control}}}
	f.Add(appendImpression(nil, &m))
	f.Add(appendFeedback(nil, &Feedback{ID: "e", Item: rerank.TextID("x"), Kind: "click", Weight: 1, Time: time.UnixMilli(2)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := decodeImpression(b); err == nil {
			again := appendImpression(nil, got)
			if second, err := decodeImpression(again); err != nil || !bytes.Equal(appendImpression(nil, second), again) {
				t.Fatalf("%x is written as %x: %v", b, again, err)
			}
		}
		if got, err := decodeFeedback(b); err == nil {
			again := appendFeedback(nil, got)
			if second, err := decodeFeedback(again); err != nil || !bytes.Equal(appendFeedback(nil, second), again) {
				t.Fatalf("%x is written as %x: %v", b, again, err)
			}
		}
	})
}
