package device

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/grpc"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// LoadModel collects the file. Its memory grows with the data that arrive, not with the
// size that the head declares.
func (s *server) LoadModel(stream grpc.ClientStreamingServer[pluginv1.LoadModelRequest, pluginv1.LoadModelResponse]) error {
	m, err := stream.Recv()
	if err != nil {
		return endedEarly(err, "the model's head")
	}
	claimed := m.GetHead().GetBytes()
	if claimed < 1 || claimed > s.limits.ModelBytes {
		return statusOf(fmt.Errorf("%w: head.bytes is %d, want 1 to %d", ErrRequest, claimed, s.limits.ModelBytes))
	}
	v := versionOf(m.GetHead().GetModel())
	file := m.GetChunk()
	for int64(len(file)) < claimed {
		if m, err = stream.Recv(); err != nil {
			return endedEarly(err, "%d of the %d bytes of model %s", len(file), claimed, v)
		}
		file = append(file, m.GetChunk()...)
	}
	if err := checkEnd(int64(len(file)), claimed, func() (bool, error) {
		m, err := stream.Recv()
		return len(m.GetChunk()) > 0, err
	}); err != nil {
		return statusOf(fmt.Errorf("model %s: %w", v, err))
	}
	if err := s.device.LoadModel(stream.Context(), v, file); err != nil {
		return statusOf(err)
	}
	return stream.SendAndClose(&pluginv1.LoadModelResponse{})
}

// checkEnd returns an error if more bytes have arrived than were declared, or if more
// follow.
func checkEnd(have, claimed int64, next func() (more bool, err error)) error {
	if have > claimed {
		return fmt.Errorf("%w: %d bytes came, head.bytes is %d", ErrRequest, have, claimed)
	}
	for {
		more, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case more:
			return fmt.Errorf("%w: more came than the %d bytes that the head says", ErrRequest, claimed)
		}
	}
}

// endedEarly returns the status for a stream that ended early, unless err is another error.
func endedEarly(err error, format string, args ...any) error {
	if errors.Is(err, io.EOF) {
		return statusOf(fmt.Errorf("%w: the stream ended after %s", ErrRequest, fmt.Sprintf(format, args...)))
	}
	return statusOf(err)
}

func (v Version) String() string { return fmt.Sprintf("%q version %q", v.Name, v.Version) }

// LoadTable passes chunks of rows on to the device as they arrive.
func (s *server) LoadTable(stream grpc.ClientStreamingServer[pluginv1.LoadTableRequest, pluginv1.LoadTableResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return endedEarly(err, "the table's head")
	}
	head, err := s.tableHead(first.GetHead())
	if err == nil {
		err = s.checkSpace(stream, head)
	}
	if err != nil {
		return statusOf(err)
	}
	if err := s.device.LoadTable(stream.Context(), head, rowsOf(head, first, stream.Recv)); err != nil {
		return statusOf(err)
	}
	return stream.SendAndClose(&pluginv1.LoadTableResponse{})
}

// tableHead checks a head against the limits. Afterwards the product of its numbers fits an
// int64.
func (s *server) tableHead(h *pluginv1.TableHead) (TableHead, error) {
	head := TableHead{Table: versionOf(h.GetTable()), Model: versionOf(h.GetModel()), Rows: int(h.GetRows()), Cols: int(h.GetCols())}
	switch {
	case h == nil:
		return head, fmt.Errorf("%w: the first message has no head", ErrRequest)
	case head.Cols < 1 || head.Cols > table.MaxFeatures:
		return head, fmt.Errorf("%w: head.cols is %d, want 1 to %d", ErrRequest, head.Cols, table.MaxFeatures)
	case head.Rows > table.MaxRows:
		return head, fmt.Errorf("%w: head.rows is %d, want at most %d", ErrRequest, head.Rows, table.MaxRows)
	case head.bytes() > s.limits.TableBytes:
		return head, fmt.Errorf("%w: table %s has %d bytes, at most %d are taken", ErrMemory, head.Table, head.bytes(), s.limits.TableBytes)
	}
	return head, nil
}

func (h TableHead) bytes() int64 { return 4 * int64(h.Rows) * int64(h.Cols) }

// checkSpace returns ErrMemory if the device has not enough free memory for a table.
func (s *server) checkSpace(stream grpc.ServerStream, h TableHead) error {
	d, err := s.device.Describe(stream.Context())
	if err == nil && d.Memory > 0 && h.bytes() > d.Free {
		err = fmt.Errorf("%w: table %s needs %d bytes and %d of %d are free", ErrMemory, h.Table, h.bytes(), d.Free, d.Memory)
	}
	return err
}

// rowsOf yields the rows of a table as they arrive. It checks that chunks consist of whole
// rows and that their number matches the head.
func rowsOf(h TableHead, m *pluginv1.LoadTableRequest, next func() (*pluginv1.LoadTableRequest, error)) Rows {
	return func(yield func([]float32, error) bool) {
		left := int64(h.Rows)
		for {
			chunk := m.GetRows()
			n := int64(len(chunk)) / (4 * int64(h.Cols))
			switch {
			case int64(len(chunk)) != n*4*int64(h.Cols):
				yield(nil, fmt.Errorf("%w: a chunk of %d bytes is not of whole rows of %d numbers", ErrRequest, len(chunk), h.Cols))
				return
			case n > left:
				yield(nil, fmt.Errorf("%w: more rows came than the %d that head.rows says", ErrRequest, h.Rows))
				return
			case n > 0 && !yield(numbersOf[float32](chunk), nil):
				return
			}
			left -= n
			var err error
			if m, err = next(); errors.Is(err, io.EOF) {
				if left > 0 {
					yield(nil, fmt.Errorf("%w: the stream ended %d rows before the %d that head.rows says", ErrRequest, left, h.Rows))
				}
				return
			} else if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// PatchTable collects a patch, because it must be applied as a whole.
func (s *server) PatchTable(stream grpc.ClientStreamingServer[pluginv1.PatchTableRequest, pluginv1.PatchTableResponse]) error {
	m, err := stream.Recv()
	if err != nil {
		return endedEarly(err, "the patch's head")
	}
	if m.GetHead() == nil {
		return statusOf(fmt.Errorf("%w: the first message has no head", ErrRequest))
	}
	p := patch{Patch: Patch{From: versionOf(m.GetHead().GetFrom()), Version: m.GetHead().GetVersion()}, left: s.limits.PatchBytes}
	for ; !errors.Is(err, io.EOF); m, err = stream.Recv() {
		if err == nil {
			err = p.add(m)
		}
		if err != nil {
			return statusOf(err)
		}
	}
	if err := s.device.PatchTable(stream.Context(), p.Patch); err != nil {
		return statusOf(err)
	}
	return stream.SendAndClose(&pluginv1.PatchTableResponse{})
}

// patch is the part of a Patch that has arrived, and the number of bytes that may still
// arrive.
type patch struct {
	Patch
	left int64
}

// add adds a message to the patch.
func (p *patch) add(m *pluginv1.PatchTableRequest) error {
	numbers, rows, removed := m.GetNumbers(), m.GetRows(), m.GetRemoved()
	p.left -= int64(len(numbers) + len(rows) + len(removed))
	n := len(numbers) / 4
	switch {
	case p.left < 0:
		return fmt.Errorf("%w: the patch has too many bytes; load the table instead", ErrMemory)
	case len(numbers)%4 != 0 || len(removed)%4 != 0:
		return fmt.Errorf("%w: %d bytes of numbers and %d of removed are not of 4 bytes each", ErrRequest, len(numbers), len(removed))
	case n == 0 && len(rows) > 0, n > 0 && (len(rows) == 0 || len(rows)%(4*n) != 0):
		return fmt.Errorf("%w: %d bytes are not %d rows", ErrRequest, len(rows), n)
	}
	if n > 0 {
		cols := len(rows) / (4 * n)
		if p.Rows.Rows > 0 && cols != p.Rows.Cols {
			return fmt.Errorf("%w: rows of %d numbers behind rows of %d", ErrRequest, cols, p.Rows.Cols)
		}
		if p.Rows.Rows > math.MaxInt32-n {
			return fmt.Errorf("%w: more than %d rows", ErrRequest, math.MaxInt32)
		}
		p.Numbers = append(p.Numbers, numbersOf[uint32](numbers)...)
		p.Rows = rerank.Matrix{Rows: p.Rows.Rows + n, Cols: cols, Data: append(p.Rows.Data, numbersOf[float32](rows)...)}
	}
	p.Removed = append(p.Removed, numbersOf[uint32](removed)...)
	return nil
}
