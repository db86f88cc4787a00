package milvus_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }

func TestMilvusLite(t *testing.T) {
	verifyNoLeak(t)
	server := servers.MilvusLiteForTest(t, servers.Options{})
	o := milvus.Options{Address: server.Address}
	k := kit("milvus-lite", server.Version, o)
	k.Lacks = []adaptertest.Capability{adaptertest.Alias}
	t.Run("conformance", func(t *testing.T) { adaptertest.Run(t, k) })
	t.Run("milvus", newLive(t, true, o).run)
	t.Run("down and up again", func(t *testing.T) { downAndUp(t, server, o) })
	t.Run("TLS", func(t *testing.T) { overTLS(t, o) })
}

// TestNewestMilvusLite: it formats JSON anew, so that only the values of payloads come back, and has no
// binary vectors.
func TestNewestMilvusLite(t *testing.T) {
	verifyNoLeak(t)
	server := servers.NewestMilvusLiteForTest(t, servers.Options{})
	o := milvus.Options{Address: server.Address}
	k := kit("milvus-lite", server.Version, o)
	k.Large = false // inserts of 100,000 rows take minutes
	t.Run("conformance", func(t *testing.T) { adaptertest.Run(t, k) })
	newLive(t, true, o).runWithout(t, "scalar fields come back exactly", "vector field of another type is refused")
}

// verifyNoLeak checks, after every other clean-up of t, that no goroutine is left.
func verifyNoLeak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// TestMilvus asks for the user that the server knows.
func TestMilvus(t *testing.T) {
	verifyNoLeak(t)
	server := servers.MilvusForTest(t, servers.Options{Authorization: true})
	o := milvus.Options{Address: server.Address, Username: "root", Password: "Milvus"}
	k := kit("Milvus", server.Version, o)
	k.Parallel = true
	t.Run("conformance", func(t *testing.T) { adaptertest.Run(t, k) })
	t.Run("milvus", newLive(t, false, o).run)
	t.Run("credentials", func(t *testing.T) { credentialsRefused(t, o) })
	t.Run("caller", func(t *testing.T) { asCaller(t, o) })
}

// asCaller: a call that is made for a caller has the caller's credentials, and
// not the store's beside them.
func asCaller(t *testing.T, o milvus.Options) {
	s, err := milvus.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for secret, want := range map[string]error{"": adapters.ErrRefused, "root:wrong": adapters.ErrRefused, "root:Milvus": adapters.ErrNotFound} {
		ctx := adapters.AsCaller(t.Context())
		if secret != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", base64.StdEncoding.EncodeToString([]byte(secret)))
		}
		if _, err := s.Describe(ctx, "absent"); !errors.Is(err, want) {
			t.Errorf("as %q: %v, want %v", secret, err, want)
		}
	}
	if _, err := s.Describe(t.Context(), "absent"); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("for itself: %v", err)
	}
}

// kit returns the claims that hold for both servers.
func kit(name, version string, o milvus.Options) adaptertest.Kit {
	calls := new(atomic.Int64)
	open := func(t *testing.T, l adapters.Limits) adapters.Store {
		t.Helper()
		o := o
		o.Limits, o.DialOptions = l, []grpc.DialOption{counting(calls)}
		s, err := milvus.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return adaptertest.Kit{
		Store: name, Version: version,
		Open:      func(t *testing.T) adapters.Store { return open(t, adapters.Limits{}) },
		OpenSmall: func(t *testing.T) adapters.Store { return open(t, adapters.Limits{MaxMessageBytes: 1 << 20}) },
		IDs:       idSets(), BadIDs: badIDs(),
		Filters: map[adaptertest.Predicate]string{
			adaptertest.ColourRed:      `colour == "red"`,
			adaptertest.ColourNotRed:   `colour != "red"`,
			adaptertest.ColourAny:      `colour in ["red", "green"]`,
			adaptertest.SizeAtLeast50:  `size >= 50`,
			adaptertest.SizeBetween:    `size >= 20 and size < 40 and colour == "blue"`,
			adaptertest.BigNumber:      `big == 9007199254740993`,
			adaptertest.HasID:          `likeness_id in [3, 7]`,
			adaptertest.MatchesNothing: `size < 0`,
		},
		BadFilters: []string{`colour ==`, `size >>> 3`, `likeness_id == "a"`},
		Calls:      calls.Load,
		CallsOfSearch: func(names []string) int64 {
			distinct := map[string]bool{}
			for _, n := range names {
				distinct[n] = true
			}
			return int64(len(distinct))
		},
		TooDeep: milvus.DefaultMaxDepth + 1,
		Large:   true,
	}
}

// counting counts the calls that read rows.
func counting(calls *atomic.Int64) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/Search") || strings.HasSuffix(method, "/Query") {
			calls.Add(1)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

func idSets() []adaptertest.IDSet {
	// The greatest number has a test of its own: Milvus 2.3 loses it.
	signed := []int64{-1 << 63, -1<<63 + 1, -1, 0, 1, 1 << 53, 1<<53 + 1, 1<<63 - 2}
	numbers := adaptertest.IDSet{Name: "signed 64-bit"}
	for _, n := range signed {
		numbers.IDs = append(numbers.IDs, rerank.IntID(n))
	}
	return []adaptertest.IDSet{numbers, {Name: "VarChar", Text: true, IDs: textIDs()}}
}

func textIDs() []rerank.ID {
	var ids []rerank.ID
	for _, s := range trickyTexts() {
		ids = append(ids, rerank.TextID(s))
	}
	return ids
}

func trickyTexts() []string {
	return []string{
		"", "plain", "7", " lead", "trail ", `quo"te`, "apo'strophe", `back\slash`, `\"`, `\\`, `end\`, `\n`, `\u0041`, "%41", "%", "%s{}",
		"nl\nx", "cr\rx", "crlf\r\n", "tab\tx", "nul\x00x", "\x01\x02\x1f\x7f", "a\u0080b", "émoji😀", "中文", "\u2028", "\ufffd", "\U0010ffff", "e\u0301", "ﷺ",
		strings.Repeat("long ", 4000),
	}
}

func badIDs() []adaptertest.BadID {
	return []adaptertest.BadID{
		{Name: "text on a number key", ID: rerank.TextID("a")},
		{Name: "number on a text key", Text: true, ID: rerank.UintID(7)},
		{Name: "over the signed numbers", ID: rerank.UintID(1 << 63)},
		{Name: "not UTF-8", Text: true, ID: rerank.TextID("a\xff")},
	}
}
