package relevance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// Items holds items in the form that a ranker reads. It is read-only.
type Items struct {
	list []plugin.Item
	keys []key
	rows []int32 // numbers in the cache; nil without a cache
}

// Len returns the number of items.
func (x Items) Len() int { return len(x.list) }

// ID returns the id of item i.
func (x Items) ID(i int) rerank.ID { return x.list[i].ID }

// slice returns items from to to−1.
func (x Items) slice(from, to int) Items {
	out := Items{list: x.list[from:to], keys: x.keys[from:to]}
	if x.rows != nil {
		out.rows = x.rows[from:to]
	}
	return out
}

// With returns the items followed by more.
func (x Items) With(more Items) Items {
	return Items{list: append(x.list, more.list...), keys: append(x.keys, more.keys...), rows: append(x.rows, more.rows...)}
}

// Pick returns the items at the given indexes.
func (x Items) Pick(at []int) Items {
	var out Items
	for _, i := range at {
		out.list, out.keys = append(out.list, x.list[i]), append(out.keys, x.keys[i])
		if x.rows != nil {
			out.rows = append(out.rows, x.rows[i])
		}
	}
	return out
}

// Reads says which parts of a stored row the ranker reads, for an
// adapters.ScanRequest: its payload (only the named fields, or all if fields is
// empty), and its vector.
func (a *Asker) Reads() (payload bool, fields []string, vector bool) {
	d := a.described
	return d.Payload || len(d.PayloadFields) > 0, payloadFields(d), d.Vectors
}

// payloadFields returns the payload fields to request. nil means the whole payload, or
// no payload.
func payloadFields(d plugin.Description) []string {
	if d.Payload {
		return nil
	}
	return d.PayloadFields
}

// Items converts stored rows to items with the payload fields that the ranker reads
// and, if it reads vectors, the first vector field. It returns adapters.ErrStore if a
// payload is not a JSON object.
func (a *Asker) Items(rows adapters.Rows) (Items, error) {
	x := Items{list: make([]plugin.Item, len(rows.IDs)), keys: make([]key, len(rows.IDs))}
	for i, id := range rows.IDs {
		item := plugin.Item{ID: id}
		if payload, _, _ := a.Reads(); payload && rows.Payloads != nil {
			var err error
			if item.Payload, err = projectPayload(rows.Payloads[i], payloadFields(a.described)); err != nil {
				return x, fmt.Errorf("%w: payload of row %s: %w", adapters.ErrStore, id, err)
			}
		}
		if a.described.Vectors && len(rows.Vectors) > 0 {
			item.Vector = slices.Clone(rows.Vectors[0].Row(i))
		}
		x.list[i], x.keys[i] = item, itemKey(item)
	}
	if a.cache != nil {
		x.rows = a.cache.itemNumbers(x.keys)
	}
	return x, nil
}

// projectPayload returns the named fields of a payload, or the whole payload if names
// is nil, with keys sorted so that equal payloads have equal bytes. It returns nil if
// no field is left. A name is a field, or a path of fields separated by dots.
func projectPayload(raw json.RawMessage, names []string) (json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	out := all
	if names != nil {
		out = map[string]any{}
		for _, name := range names {
			copyField(out, all, name)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(out)
	return bytes.TrimSpace(b.Bytes()), err
}

// copyField copies the field or path that name denotes.
func copyField(to, from map[string]any, name string) {
	if value, ok := from[name]; ok {
		to[name] = value
		return
	}
	first, rest, ok := strings.Cut(name, ".")
	inner, object := from[first].(map[string]any)
	if !ok || !object {
		return
	}
	below, object := to[first].(map[string]any)
	if !object {
		below = map[string]any{}
	}
	if copyField(below, inner, rest); len(below) > 0 {
		to[first] = below
	}
}

// itemKey hashes everything that a ranker can read of an item.
func itemKey(x plugin.Item) key {
	h := sha256.New()
	id, _ := x.ID.MarshalJSON() // an id is a number or a string, which JSON can always encode
	hashBytes(h, id)
	hashBytes(h, x.Payload)
	hashVector(h, x.Vector)
	return key(h.Sum(nil)[:keySize])
}

// queryKey hashes everything that a ranker can read of a query.
func queryKey(q plugin.Query) key {
	h := sha256.New()
	hashBytes(h, []byte(q.Text))
	hashVector(h, q.Vector)
	if q.HasUserID {
		hashBytes(h, binary.LittleEndian.AppendUint64(nil, uint64(q.UserID)))
	} else {
		hashBytes(h, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(q.Context)) {
		hashBytes(h, []byte(name))
		hashVector(h, []float32{q.Context[name]})
	}
	return key(h.Sum(nil)[:keySize])
}

// hashBytes hashes the length of b, then b, so that different sequences of byte
// strings never hash the same bytes.
func hashBytes(h hash.Hash, b []byte) {
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
	h.Write(b)
}

func hashVector(h hash.Hash, v []float32) {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	hashBytes(h, b)
}
