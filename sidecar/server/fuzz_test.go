package server_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// FuzzSearchRequest sends arbitrary bytes as a SearchRequest through a server
// with a real pipeline: whatever they are, the answer is one or a fault of the
// caller, never a panic and never an internal error.
func FuzzSearchRequest(f *testing.F) {
	seeds := []*likenessv1.SearchRequest{question(), {}, question(), question()}
	seeds[2].Filter, seeds[2].Explain, seeds[2].Payload = `{"must":[{"key":"n","range":{"gt":3}}]}`, true, &likenessv1.PayloadSelector{}
	gap := float32(0)
	seeds[3].MaxGap, seeds[3].Depth, seeds[3].K = &gap, 7, 30
	for _, seed := range seeds {
		b, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	w := start(f)
	allowed := map[codes.Code]bool{
		codes.OK: true, codes.InvalidArgument: true, codes.NotFound: true, codes.DeadlineExceeded: true, codes.ResourceExhausted: true,
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var answer []byte
		err := w.conn.Invoke(t.Context(), likenessv1.SearchService_Search_FullMethodName, message, &answer, grpc.ForceCodec(raw{}))
		if !allowed[status.Code(err)] {
			t.Errorf("error %v", err)
		}
		if err == nil {
			if err := proto.Unmarshal(answer, &likenessv1.SearchResponse{}); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
		w.counts.mu.Lock()
		defer w.counts.mu.Unlock()
		if w.counts.panics > 0 {
			t.Fatalf("panic: %s", w.log)
		}
	})
}
