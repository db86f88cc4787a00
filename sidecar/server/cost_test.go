package server_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// verbatim is a codec that sends bytes as they are.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }
func (verbatim) Name() string                         { return "proto" }

// A batch of more searches than are decoded is refused with the limit and what to do.
func TestBatchOfEmptySearches(t *testing.T) {
	w := start(t)
	err := w.conn.Invoke(t.Context(), likenessv1.SearchService_SearchBatch_FullMethodName, bytes.Repeat([]byte{0x0a, 0}, 1<<17), new([]byte), grpc.ForceCodecV2(verbatim{}))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "65536 messages") || !strings.Contains(err.Error(), "split the batch") {
		t.Error(err)
	}
}
