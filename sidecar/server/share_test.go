package server_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

// TestHostsShareALimit: without tokens, the clients of a host are one caller, whichever listener they call.
func TestHostsShareALimit(t *testing.T) {
	var callers []string
	w := start(t, answering(func(ctx context.Context, _ search.Request) (search.Answer, error) {
		callers = append(callers, gate.CallerOf(ctx))
		return search.Answer{}, nil
	}))
	pipe := bufconn.Listen(1 << 20)
	local, ended := w.server.Local(), make(chan error, 1)
	go func() { ended <- local.Serve(pipe) }()
	defer func() {
		local.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	through, err := grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	forged := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", "10.9.9.9, 10.0.0.1") // the gateway adds the last
	for _, c := range []likenessv1.SearchServiceClient{w.search, likenessv1.NewSearchServiceClient(through)} {
		if _, err := c.Search(forged, question()); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"127.0.0.1", "10.0.0.1"}; !slices.Equal(callers, want) {
		t.Errorf("the searches are of %q, want %q", callers, want)
	}
}

// Tokens are callers: beside another one, none takes the last place of a limit beyond its share.
func TestTokensShareALimit(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		entered <- struct{}{}
		<-release
		return search.Answer{}, nil
	}), tokensOf(t, "- {name: a, token: token-a}\n- {name: b, token: token-b}\n"), func(o *server.Options) {
		o.Searcher = admitted(o.Searcher, 4, gate.Limit{})
	})
	search := func(token string) error {
		_, err := w.search.Search(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), question())
		return err
	}
	ended, letGo := make(chan error, 4), sync.OnceFunc(func() { close(release) })
	defer letGo()
	begin := func(token string) {
		go func() { ended <- search(token) }()
		<-entered
	}
	for _, token := range []string{"token-b", "token-a", "token-a"} {
		begin(token)
	}
	third := make(chan error, 1)
	go func() { third <- search("token-a") }()
	select {
	case err := <-third:
		if err == nil || !strings.Contains(err.Error(), "has its share") {
			t.Errorf("the third search of a caller of two, of four: %v", err)
		}
	case <-entered:
		t.Fatal("the third search of a caller of two, of four, has begun")
	}
	begin("token-b")
	letGo()
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
