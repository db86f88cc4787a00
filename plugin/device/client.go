package device

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
)

// chunkBytes is the approximate size of a message that carries a part of a model, a table
// or a patch.
const chunkBytes = 1 << 20

// Client calls a device in another process. It verifies answers: as many scores as rows,
// valid row numbers, in order. It is safe for concurrent use.
type Client struct {
	service pluginv1.SimilarityScorerServiceClient
}

var _ Device = (*Client)(nil)

// NewClient returns a client of the SimilarityScorerService on a connection.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{pluginv1.NewSimilarityScorerServiceClient(conn)}
}

// Describe implements Device. Like every method of Client, it can also return
// ErrUnavailable.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	r, err := c.service.DescribeSimilarityScorer(ctx, &pluginv1.DescribeSimilarityScorerRequest{})
	if err != nil {
		return Description{}, errorOf(ctx, err)
	}
	d := Description{
		Name: r.GetName(), Version: r.GetVersion(), Memory: r.GetMemoryBytes(), Free: r.GetFreeBytes(), MaxK: int(r.GetMaxK()),
		Models: versionsOf(r.GetModels()), Tables: versionsOf(r.GetTables()),
	}
	for _, k := range r.GetKinds() {
		d.Kinds = append(d.Kinds, rerank.Kind(k))
	}
	return d, nil
}

// LoadModel implements Device.
func (c *Client) LoadModel(ctx context.Context, v Version, file []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.service.LoadModel(ctx)
	if err != nil {
		return errorOf(ctx, err)
	}
	m := &pluginv1.LoadModelRequest{Head: &pluginv1.ModelHead{Model: v.message(), Bytes: int64(len(file))}}
	for {
		n := min(len(file), chunkBytes)
		m.Chunk, file = file[:n], file[n:]
		if err = stream.Send(m); err != nil || len(file) == 0 {
			return finish(ctx, stream, err)
		}
		m = &pluginv1.LoadModelRequest{}
	}
}

// finish closes a stream after a Send that returned err, and returns the device's error.
func finish[Q, A any](ctx context.Context, stream grpc.ClientStreamingClient[Q, A], err error) error {
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the device has answered early, and its answer has the reason
		return errorOf(ctx, err)
	}
	if _, err = stream.CloseAndRecv(); err != nil {
		return errorOf(ctx, err)
	}
	return nil
}

// LoadTable implements Device.
func (c *Client) LoadTable(ctx context.Context, h TableHead, rows Rows) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.service.LoadTable(ctx)
	if err != nil {
		return errorOf(ctx, err)
	}
	err = stream.Send(&pluginv1.LoadTableRequest{Head: &pluginv1.TableHead{
		Table: h.Table.message(), Model: h.Model.message(), Rows: uint32(h.Rows), Cols: uint32(h.Cols),
	}})
	size := max(1, chunkBytes/(4*max(h.Cols, 1))) * max(h.Cols, 1)
	for chunk, failed := range rows {
		if failed != nil {
			return failed // the deferred cancel ends the stream
		}
		for len(chunk) > 0 && err == nil {
			n := min(len(chunk), size)
			err = stream.Send(&pluginv1.LoadTableRequest{Rows: bytesOf(chunk[:n])})
			chunk = chunk[n:]
		}
		if err != nil {
			break
		}
	}
	return finish(ctx, stream, err)
}

// PatchTable implements Device.
func (c *Client) PatchTable(ctx context.Context, p Patch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(p.Numbers) != p.Rows.Rows || len(p.Rows.Data) != p.Rows.Rows*p.Rows.Cols {
		return fmt.Errorf("%w: %d numbers of %d rows", ErrRequest, len(p.Numbers), p.Rows.Rows)
	}
	stream, err := c.service.PatchTable(ctx)
	if err != nil {
		return errorOf(ctx, err)
	}
	m := &pluginv1.PatchTableRequest{Head: &pluginv1.PatchHead{From: p.From.message(), Version: p.Version}}
	size := max(1, chunkBytes/(4*max(p.Rows.Cols, 1)))
	for from := 0; from < p.Rows.Rows && err == nil; from += size {
		to := min(from+size, p.Rows.Rows)
		m.Numbers, m.Rows = bytesOf(p.Numbers[from:to]), bytesOf(p.Rows.Slice(from, to).Data)
		err = stream.Send(m)
		m = &pluginv1.PatchTableRequest{}
	}
	for removed := p.Removed; err == nil && (len(removed) > 0 || m.GetHead() != nil); {
		n := min(len(removed), chunkBytes/4)
		m.Removed, removed = bytesOf(removed[:n]), removed[n:]
		err = stream.Send(m)
		m = &pluginv1.PatchTableRequest{}
	}
	return finish(ctx, stream, err)
}

// Unload implements Device.
func (c *Client) Unload(ctx context.Context, models, tables []Version) error {
	_, err := c.service.Unload(ctx, &pluginv1.UnloadRequest{Models: messages(models), Tables: messages(tables)})
	if err != nil {
		return errorOf(ctx, err)
	}
	return nil
}

// Rescore implements Device. It also returns ErrFailed for an invalid answer.
func (c *Client) Rescore(ctx context.Context, a Ask, rows []uint32) (Best, error) {
	r, err := c.service.Rescore(ctx, &pluginv1.RescoreRequest{
		Model: a.Model.message(), Table: a.Table.message(), Query: messageOf(a.Query), Rows: bytesOf(rows), K: int32(a.K),
	})
	if err != nil {
		return Best{}, errorOf(ctx, err)
	}
	return decodeBest(r.GetBest(), a.K)
}

// Scan implements Device. It also returns ErrFailed for an invalid answer.
func (c *Client) Scan(ctx context.Context, a Ask, bitmap []byte) (Best, error) {
	r, err := c.service.Scan(ctx, &pluginv1.ScanRequest{
		Model: a.Model.message(), Table: a.Table.message(), Query: messageOf(a.Query), Bitmap: bitmap, K: int32(a.K),
	})
	if err != nil {
		return Best{}, errorOf(ctx, err)
	}
	return decodeBest(r.GetBest(), a.K)
}

// decodeBest decodes an answer and verifies it.
func decodeBest(m *pluginv1.Best, k int) (Best, error) {
	if len(m.GetRows())%4 != 0 || len(m.GetScores()) != len(m.GetRows()) {
		return Best{}, fmt.Errorf("%w: %d bytes of rows and %d of scores", ErrFailed, len(m.GetRows()), len(m.GetScores()))
	}
	b := bestOf(m)
	if err := b.Check(k); err != nil {
		return Best{}, err
	}
	return b, nil
}

// Check verifies an answer without knowing the rows: at most k rows, each once and in
// order, and a valid Epsilon and Next. It returns ErrFailed.
func (b Best) Check(k int) error {
	switch {
	case len(b.Rows) != len(b.Scores) || len(b.Rows) > k:
		return fmt.Errorf("%w: %d rows and %d scores, want %d at most", ErrFailed, len(b.Rows), len(b.Scores), k)
	case !finite(b.Epsilon) || b.Epsilon < 0:
		return fmt.Errorf("%w: epsilon is %v", ErrFailed, b.Epsilon)
	case b.Next != none && !finite(b.Next):
		return fmt.Errorf("%w: next is %v", ErrFailed, b.Next)
	case b.NotFinite < 0 || b.NotFinite > b.Scored || len(b.Rows) > b.Scored:
		return fmt.Errorf("%w: %d rows, %d scored, %d not finite", ErrFailed, len(b.Rows), b.Scored, b.NotFinite)
	}
	for i := 1; i < len(b.Rows); i++ {
		if !ranksBefore(b.Scores[i-1], b.Rows[i-1], b.Scores[i], b.Rows[i]) {
			return fmt.Errorf("%w: row %d (%v) does not come before row %d (%v)", ErrFailed, b.Rows[i-1], b.Scores[i-1], b.Rows[i], b.Scores[i])
		}
	}
	if n := len(b.Scores); b.Next != none && n > 0 && !(b.Next <= b.Scores[n-1]) {
		return fmt.Errorf("%w: next, %v, is above the last score, %v", ErrFailed, b.Next, b.Scores[n-1])
	}
	return nil
}

// ranksBefore reports whether row i with score a ranks before row j with score b: by score
// descending, then by number, with scores that are not finite last.
func ranksBefore(a float32, i uint32, b float32, j uint32) bool {
	switch {
	case finite(a) != finite(b):
		return finite(a)
	case finite(a) && a != b:
		return a > b
	default:
		return i < j
	}
}
