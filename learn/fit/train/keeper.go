package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"hash"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// saveInterval is the least time between two saves in the course of a fit.
const saveInterval = 5 * time.Second

// keeper writes the state of one fit to its checkpoint and reads it again. Without a
// checkpoint it does nothing. It is not safe for concurrent use.
type keeper struct {
	checkpoint fit.Checkpoint
	owner      [sha256.Size]byte // hash of the fit's kind, options and data
	lastSave   time.Time
}

// newKeeper returns the keeper of a fit of the named kind. options holds every setting
// that decides the outcome; it is hashed as JSON.
func newKeeper(checkpoint fit.Checkpoint, kind string, d fit.Data, options any) (*keeper, error) {
	k := &keeper{checkpoint: checkpoint, lastSave: time.Now()}
	if checkpoint == nil {
		return k, nil
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	h := NewHasher()
	h.addBytes([]byte("fit state 3 of " + kind))
	h.addBytes(text)
	h.addData(d)
	h.hash.Sum(k.owner[:0])
	return k, nil
}

// isEnabled reports whether there is a checkpoint.
func (k *keeper) isEnabled() bool { return k.checkpoint != nil }

// load reads the state into a pointer, and leaves it alone if nothing was saved. It
// returns fit.ErrCheckpoint or the error of the checkpoint.
func (k *keeper) load(state any) error {
	if !k.isEnabled() {
		return nil
	}
	text, err := k.checkpoint.Load()
	if err != nil || text == nil {
		return err
	}
	const size = sha256.Size
	switch {
	case len(text) < 2*size:
		return fmt.Errorf("%w: it has %d bytes, less than its own digests", fit.ErrCheckpoint, len(text))
	case sha256.Sum256(text[size:]) != [size]byte(text[:size]):
		return fmt.Errorf("%w: it is damaged, its digest is another", fit.ErrCheckpoint)
	case [size]byte(text[size:2*size]) != k.owner:
		return fmt.Errorf("%w: it belongs to other data or options; give it those, or begin anew without it", fit.ErrCheckpoint)
	}
	return decodeState(text[2*size:], state)
}

// saveSoon saves the state unless another was saved a moment ago.
func (k *keeper) saveSoon(state any) error {
	if time.Since(k.lastSave) < saveInterval {
		return nil
	}
	return k.save(state)
}

// save saves the state.
func (k *keeper) save(state any) error {
	if !k.isEnabled() {
		return nil
	}
	body := bytes.NewBuffer(make([]byte, sha256.Size)) // room for the digest of the rest
	body.Write(k.owner[:])
	if err := gob.NewEncoder(body).Encode(state); err != nil {
		return fmt.Errorf("keeping the state of the fit: %w", err)
	}
	text := body.Bytes()
	sum := sha256.Sum256(text[sha256.Size:])
	copy(text, sum[:])
	if err := k.checkpoint.Save(text); err != nil {
		return fmt.Errorf("keeping the state of the fit: %w", err)
	}
	k.lastSave = time.Now()
	return nil
}

// encodeState encodes a part of the state.
func encodeState(state any) ([]byte, error) {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(state); err != nil {
		return nil, fmt.Errorf("keeping the state of the fit: %w", err)
	}
	return body.Bytes(), nil
}

// decodeState reads what encodeState wrote. It returns fit.ErrCheckpoint.
func decodeState(text []byte, state any) error {
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(state); err != nil {
		return fmt.Errorf("%w: %w", fit.ErrCheckpoint, err)
	}
	return nil
}

// Hasher hashes what a fit depends on, each part with its length.
type Hasher struct {
	hash   hash.Hash
	length []byte
}

// NewHasher returns an empty SHA-256 hasher.
func NewHasher() *Hasher { return &Hasher{hash: sha256.New()} }

// Sum returns the hash of all that was added.
func (h *Hasher) Sum() []byte { return h.hash.Sum(nil) }

// AddMatrix adds the rows of a matrix.
func (h *Hasher) AddMatrix(m rerank.Matrix) {
	for r := range m.Rows {
		h.addFloats(m.Row(r))
	}
}

func (h *Hasher) addBytes(b []byte) {
	h.length = binary.LittleEndian.AppendUint64(h.length[:0], uint64(len(b)))
	_, _ = h.hash.Write(h.length) // a hash does not fail
	_, _ = h.hash.Write(b)
}

func (h *Hasher) addData(d fit.Data) {
	for _, m := range []rerank.Matrix{d.Items, d.Queries} {
		_ = fit.VisitRows(m, d.Forget, func(_ int, row []float32) error {
			h.addFloats(row)
			return nil
		})
	}
	var b []byte
	for _, items := range slices.Concat(d.Relevant, d.Seen) {
		b = b[:0]
		for _, x := range items {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
		h.addBytes(b)
	}
	for _, weights := range d.Weights {
		h.addFloats(weights)
	}
	for _, looks := range d.Looks {
		b = b[:0]
		for _, l := range looks {
			b = binary.LittleEndian.AppendUint32(b, uint32(l.Item))
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(l.Times))
		}
		h.addBytes(b)
	}
	for _, numbers := range [][]float64{d.Asked, d.Inverse} {
		b = b[:0]
		for _, n := range numbers {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
		}
		h.addBytes(b)
	}
	for _, numbers := range [][]int64{d.Times, d.UserIDs} {
		b = b[:0]
		for _, n := range numbers {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		h.addBytes(b)
	}
}

func (h *Hasher) addFloats(v []float32) {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	h.addBytes(b)
}
