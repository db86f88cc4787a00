package fit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// ErrCheckpoint: a checkpoint is damaged, or of other data, options or another
// version; the fit has to begin anew, without it.
var ErrCheckpoint = errors.New("checkpoint is not of this fit")

// Checkpoint keeps the state of a fit. Its content is the fit's own affair and
// not a format. A fit that goes on from it ends with the same model as one that
// was never disturbed.
type Checkpoint interface {
	// Load returns what was saved last; nil if there is nothing.
	Load() ([]byte, error)
	// Save replaces it, all or nothing. It is called at the end of a round, every
	// few seconds at most.
	Save(state []byte) error
}

// saveEvery is the least time between two saves.
const saveEvery = 5 * time.Second

// keeper saves the state of one fit and finds it again. One without a
// Checkpoint keeps nothing. It is not safe for concurrent use.
type keeper struct {
	to     Checkpoint
	digest [sha256.Size]byte // of what the state belongs to
	last   time.Time
}

// newKeeper makes the keeper of a fit of that name. The options are those that
// decide the outcome, as JSON has them.
func newKeeper(to Checkpoint, name string, d Data, options any) (*keeper, error) {
	k := &keeper{to: to, last: time.Now()}
	if to == nil {
		return k, nil
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	h := digester{hash: sha256.New()}
	h.bytes([]byte("fit state 1 of " + name))
	h.bytes(text)
	h.data(d)
	h.hash.Sum(k.digest[:0])
	return k, nil
}

// load reads the state, a pointer, which stays as it is where there is none. It
// returns ErrCheckpoint or the error of the Checkpoint.
func (k *keeper) load(state any) error {
	if k.to == nil {
		return nil
	}
	text, err := k.to.Load()
	if err != nil || text == nil {
		return err
	}
	const size = sha256.Size
	switch {
	case len(text) < 2*size:
		return fmt.Errorf("%w: it has %d bytes, less than its own digests", ErrCheckpoint, len(text))
	case sha256.Sum256(text[size:]) != [size]byte(text[:size]):
		return fmt.Errorf("%w: it is damaged, its digest is another", ErrCheckpoint)
	case [size]byte(text[size:2*size]) != k.digest:
		return fmt.Errorf("%w: it belongs to other data or options; give it those, or begin anew without it", ErrCheckpoint)
	}
	if err := gob.NewDecoder(bytes.NewReader(text[2*size:])).Decode(state); err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return nil
}

// save keeps the state if the last one is some time ago, or at once.
func (k *keeper) save(state func() any, atOnce bool) error {
	if k.to == nil || !atOnce && time.Since(k.last) < saveEvery {
		return nil
	}
	body := bytes.NewBuffer(make([]byte, sha256.Size)) // room for the digest of the rest
	body.Write(k.digest[:])
	if err := gob.NewEncoder(body).Encode(state()); err != nil {
		return fmt.Errorf("keeping the state of the fit: %w", err)
	}
	text := body.Bytes()
	sum := sha256.Sum256(text[sha256.Size:])
	copy(text, sum[:])
	if err := k.to.Save(text); err != nil {
		return fmt.Errorf("keeping the state of the fit: %w", err)
	}
	k.last = time.Now()
	return nil
}

// digester hashes data, every part with its length.
type digester struct {
	hash interface {
		Write(p []byte) (int, error)
		Sum(b []byte) []byte
	}
	buffer []byte
}

func (h *digester) bytes(b []byte) {
	h.buffer = binary.LittleEndian.AppendUint64(h.buffer[:0], uint64(len(b)))
	_, _ = h.hash.Write(h.buffer) // a hash does not fail
	_, _ = h.hash.Write(b)
}

func (h *digester) data(d Data) {
	h.matrix(d.Items)
	h.matrix(d.Queries)
	var b []byte
	for _, items := range d.Relevant {
		b = b[:0]
		for _, x := range items {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
		h.bytes(b)
	}
	for _, weights := range d.Weights {
		h.floats(weights)
	}
	for _, numbers := range [][]int64{d.Times, d.UserIDs} {
		b = b[:0]
		for _, n := range numbers {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		h.bytes(b)
	}
}

func (h *digester) matrix(m rerank.Matrix) {
	for r := range m.Rows {
		h.floats(m.Row(r))
	}
}

func (h *digester) floats(v []float32) {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	h.bytes(b)
}
