package routing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestAcceptancesDiffer: accepting one credential for one right to some collections says nothing
// about another credential, right or collection.
func TestAcceptancesDiffer(t *testing.T) {
	var a acceptances
	seen, callers := map[acceptance]string{}, map[string]string{}
	for _, header := range CredentialHeaders() {
		for _, key := range []string{"k", "l"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), header, key)
			if caller := a.caller(ctx); callers[caller] != "" {
				t.Errorf("%s %s is the caller %s", header, key, callers[caller])
			} else {
				callers[caller] = header + " " + key
			}
			for _, to := range []right{toSearch, toWrite, toRename} {
				for _, collections := range [][]string{{"c"}, {"d"}, {"c", "d"}, {"cd"}} {
					of := a.of(ctx, to, collections...)
					if seen[of] != "" {
						t.Errorf("%s %s to %s %q is accepted as %s", header, key, to, collections, seen[of])
					}
					if seen[of] = header + " " + key + " to " + string(to); of != a.of(ctx, to, collections...) {
						t.Error("an acceptance is not known again")
					}
				}
			}
		}
	}
}

// TestAnOpenStoreKnowsNoCredentials: clients that make up credentials push nobody's out of what is remembered.
func TestAnOpenStoreKnowsNoCredentials(t *testing.T) {
	a := acceptances{open: true}
	a.remember(a.of(t.Context(), toSearch, "c"))
	for i := range 2 * maxAccepted {
		if of := a.of(metadata.AppendToOutgoingContext(t.Context(), "api-key", fmt.Sprint(i)), toSearch, "c"); !a.has(of) {
			t.Fatalf("credential %d is not accepted", i)
		} else {
			a.remember(of)
		}
	}
	if len(a.entries) != 1 || a.has(a.of(t.Context(), toWrite, "c")) {
		t.Errorf("%d are remembered", len(a.entries))
	}
}

// answersWith is an exchange whose original has a fixed answer.
type answersWith struct {
	Exchange[rawgrpc.Reply]
	own rawgrpc.Reply
}

func (answersWith) Locate(context.Context) (Asked, error) { return Asked{}, Pass("not-nearest") }

func (answersWith) Read(context.Context) (Asked, error) {
	return Asked{Searches: []Search{{Vector: "v", Query: []float32{1}, Limit: 1}}}, nil
}

func (x answersWith) Original(context.Context, bool) rawgrpc.Reply { return x.own }

// TestWhomARouteRefuses: a route that fails closed refuses a caller in its own words, unless the
// database refuses the caller, who must not learn about the route.
func TestWhomARouteRefuses(t *testing.T) {
	denies := func(message []byte) bool { return string(message) == "denied" }
	for name, c := range map[string]struct {
		own   rawgrpc.Reply
		want  codes.Code
		tells bool
	}{
		"accepted":                 {rawgrpc.Reply{Message: []byte("rows")}, codes.Unavailable, true},
		"denied":                   {rawgrpc.Reply{Err: status.Error(codes.PermissionDenied, "no")}, codes.PermissionDenied, false},
		"denied in the message":    {rawgrpc.Reply{Message: []byte("denied")}, codes.OK, false},
		"another error of its own": {rawgrpc.Reply{Err: status.Error(codes.Internal, "no")}, codes.Unavailable, true},
	} {
		r := routerOf(&route.Route{Policy: route.Policy{Failure: route.FailClosed}, Parts: route.Parts{Broken: errors.New("no model")}})
		r.accepted.remember(r.accepted.of(t.Context(), toSearch, "c"))
		got := Reply(t.Context(), r, Target{Name: "c", Routed: "c", Own: "c"}, answersWith{own: c.own}, denies)
		if status.Code(got.Err) != c.want || (len(got.Trailer.Get(StatusKey)) > 0) != c.tells {
			t.Errorf("%s: %v, trailer %v", name, got.Err, got.Trailer)
		}
	}
}

// TestDecode: a request passes if it has a field, at any depth, that this build does not know, or
// is no such message.
func TestDecode(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 1)
	whole, err := proto.Marshal(&qdrant.SearchPoints{CollectionName: "c", Filter: &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatch("k", "v")}}})
	if err != nil {
		t.Fatal(err)
	}
	inFilter := protowire.AppendBytes(protowire.AppendTag(slices.Clone(whole), 3, protowire.BytesType), unknown)
	for name, c := range map[string]struct {
		request []byte
		want    error
	}{
		"whole":          {whole, nil},
		"cut":            {whole[:len(whole)-1], Pass("size")},
		"unknown":        {slices.Concat(whole, unknown), Pass("unknown-field")},
		"unknown inside": {inFilter, Pass("unknown-field")},
	} {
		err := Decode(c.request, &qdrant.SearchPoints{})
		if pass := Pass(""); !errors.Is(err, c.want) && !(name == "cut" && errors.As(err, &pass)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestTextOfAField: the last of several occurrences counts, as in protobuf.
func TestTextOfAField(t *testing.T) {
	field := func(n protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), text)
	}
	for name, c := range map[string]struct {
		message []byte
		text    string
		ok      bool
	}{
		"one":     {field(1, "a"), "a", true},
		"two":     {slices.Concat(field(1, "a"), field(2, "x"), field(1, "b")), "b", true},
		"another": {field(2, "x"), "", false},
		"cut":     {field(1, "abc")[:3], "", false},
		"empty":   {nil, "", false},
	} {
		if text, ok := Text(c.message, 1); text != c.text || ok != c.ok {
			t.Errorf("%s: %q, %t", name, text, ok)
		}
	}
	many := bytes.Repeat(field(1, "a name"), 1000)
	if n := testing.AllocsPerRun(10, func() { Text(many, 1) }); n > 1 {
		t.Errorf("a thousand names cost %v allocations", n)
	}
}
