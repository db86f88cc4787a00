// Package recording puts taps between a sidecar and a real database, and returns the decoded
// requests that reached the database. Tests compare these requests, field by field, with the
// client's call that led to them.
package recording

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// Upstream is a tap in front of a database, which records its requests.
type Upstream struct {
	// GRPC is the tap's host:port for gRPC calls, REST its base URL for REST requests.
	GRPC, REST string

	taps []*harness.Tap
	cuts []func() error // each closes a tap once
}

// Before opens taps in front of a database's gRPC address host:port and, if restURL is not empty,
// its REST base URL.
func Before(t testing.TB, grpcAddress, restURL string) *Upstream {
	t.Helper()
	u := &Upstream{}
	u.GRPC = u.tap(t, grpcAddress)
	if restURL != "" {
		u.REST = "http://" + u.tap(t, strings.TrimPrefix(restURL, "http://"))
	}
	return u
}

func (u *Upstream) tap(t testing.TB, address string) string {
	t.Helper()
	tap, err := harness.NewTap(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	cut := sync.OnceValue(tap.Close)
	t.Cleanup(func() {
		if err := cut(); err != nil {
			t.Error(err)
		}
	})
	u.taps, u.cuts = append(u.taps, tap), append(u.cuts, cut)
	return tap.Address()
}

// Requests cuts the connections and returns the requests that reached the database. Stop the
// sidecar first, so that no request is in flight.
func (u *Upstream) Requests(t testing.TB) (all []harness.Exchange) {
	t.Helper()
	for i, tap := range u.taps {
		_ = u.cuts[i]() // the clean-up reports errors
		found, err := tap.Exchanges()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// Await waits until enough returns true for the requests of each interface of the database.
func (u *Upstream) Await(t testing.TB, enough func([]harness.Exchange) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, tap := range u.taps {
		if err := tap.Await(ctx, enough); err != nil {
			t.Error(err)
		}
	}
}

// ByHeader groups requests by the values of a header, such as api-key; "" stands for requests
// without it.
func ByHeader(all []harness.Exchange, name string) map[string][]harness.Exchange {
	out := map[string][]harness.Exchange{}
	for _, e := range all {
		key := strings.Join(e.Metadata[name], ", ")
		out[key] = append(out[key], e)
	}
	return out
}

// Of returns the requests of the given method.
func Of(all []harness.Exchange, method string) (found []harness.Exchange) {
	for _, e := range all {
		if e.Method() == method {
			found = append(found, e)
		}
	}
	return found
}

// Sidecar serves a configuration until stop is called or the test ends. The models are written to
// the configuration's folder. The sidecar's environment consists of environ alone.
func Sidecar(t testing.TB, text string, models map[string]*model.Model, environ ...string) (at serve.Addresses, stop func()) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "likeness.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if err := model.Write(filepath.Join(dir, name), models[name]); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(config.Source{File: file, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at },
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case at = <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return at, stop
}

// Unset returns the fields of a message that are not set and not in except.
func Unset(m proto.Message, except map[string]string) (names []string) {
	r := m.ProtoReflect()
	for i := range r.Descriptor().Fields().Len() {
		f := r.Descriptor().Fields().Get(i)
		if _, excepted := except[string(f.Name())]; !excepted && !r.Has(f) {
			names = append(names, string(f.Name()))
		}
	}
	return names
}

// Changed returns the fields in which two messages of one type differ.
func Changed(a, b proto.Message) (names []string) {
	x, y := a.ProtoReflect(), b.ProtoReflect()
	for i := range x.Descriptor().Fields().Len() {
		f := x.Descriptor().Fields().Get(i)
		if x.Has(f) != y.Has(f) || x.Has(f) && !equal(f, x, y) {
			names = append(names, string(f.Name()))
		}
	}
	return names
}

// equal compares one field of two messages.
func equal(f protoreflect.FieldDescriptor, x, y protoreflect.Message) bool {
	one, other := x.New(), y.New()
	one.Set(f, x.Get(f))
	other.Set(f, y.Get(f))
	return proto.Equal(one.Interface(), other.Interface())
}
