package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

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
