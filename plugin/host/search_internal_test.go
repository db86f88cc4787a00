package host

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/plugin/internal/hosted"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestClosedConnectionIsNoAnswer: a call that begins just after the host has closed the
// connection of a process that ended is repeated, and through Conn it is UNAVAILABLE.
func TestClosedConnectionIsNoAnswer(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///unused", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p := &hosted.Process{Conn: conn}
	canceled := status.Error(codes.Canceled, "the caller gave up")
	if isConnectionLost(p, canceled, nil) || status.Code(endedError(p, canceled)) != codes.Canceled {
		t.Error("a caller that gave up counts as a connection that was lost")
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = likenessv1.NewSearchServiceClient(conn).Search(t.Context(), &likenessv1.SearchRequest{})
	if !isConnectionLost(p, err, nil) {
		t.Errorf("%v: not repeated", err)
	}
	if got := status.Code(endedError(p, err)); got != codes.Unavailable {
		t.Errorf("%v: %v, want UNAVAILABLE", err, got)
	}
}
