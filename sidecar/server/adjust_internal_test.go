package server

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAdjustedLimits: both limits of a batch change while the server runs, and the others stay.
func TestAdjustedLimits(t *testing.T) {
	s := &Server{shared: &services{}}
	s.shared.limits.Store(&Limits{MaxMessageBytes: 1, MaxConcurrentStreams: 2, MaxBatch: 3, BatchParallelism: 4})
	a, err := s.Adjust(Limits{MaxMessageBytes: 10, MaxConcurrentStreams: 20, MaxBatch: 30, BatchParallelism: 40}, "")
	if err != nil {
		t.Fatal(err)
	}
	a.Apply()
	if got, want := *s.shared.limits.Load(), (Limits{MaxMessageBytes: 1, MaxConcurrentStreams: 2, MaxBatch: 30, BatchParallelism: 40}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestErrorsWithAStatusKeepIt: it is the answer's.
func TestErrorsWithAStatusKeepIt(t *testing.T) {
	if got := statusOf(status.Error(codes.Unimplemented, "not here")); got.Code() != codes.Unimplemented || got.Message() != "not here" {
		t.Errorf("%v", got)
	}
}
