package harness_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// cache is the folder in which the clients' packages are kept between runs.
const cache = "../../.cache/clients"

// database starts fresh servers of one kind and version.
type database struct {
	name, version string
	rules         []harness.Rule
	start         func(t *testing.T) harness.Address
}

// program fails the test in CI, and skips it elsewhere, if a client's packages cannot be installed.
func program(t *testing.T, p *harness.Program, err error) *harness.Program {
	t.Helper()
	switch {
	case err == nil:
		return p
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skipf("the client cannot be installed (offline?): %v", err)
	}
	return nil
}

// pinned returns the version of a client's package.
func pinned(t *testing.T, file, name string) string {
	t.Helper()
	version, err := harness.Pinned(script(file), name)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// runs plays a client's scenario on several addresses concurrently.
func runs(t *testing.T, c harness.Client, at ...harness.Address) [][]harness.Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	steps := make([][]harness.Step, len(at))
	var group errgroup.Group
	for i := range at {
		group.Go(func() (err error) {
			steps[i], err = c.Run(ctx, at[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// hung reports whether a server could not read from itself in time. Qdrant 1.17.0 can lock
// itself when queries arrive while it makes a snapshot, with or without a proxy. After a minute it
// says so, or answers 408, which no step expects.
func hung(steps []harness.Step) bool {
	return slices.ContainsFunc(steps, func(s harness.Step) bool {
		e := s.Error
		return e != nil && (e.Code == "408" || strings.Contains(e.Message, "read operations failed") && strings.Contains(e.Message, "Timeout"))
	})
}

// conform runs a client's scenario directly, through the proxy and, in a thorough run, directly
// again, each on a fresh server. It compares outcomes under the rules, and bytes on both sides of
// the proxy. It returns the client's requests.
func conform(t *testing.T, db database, c harness.Client) []harness.Exchange {
	t.Helper()
	var steps [][]harness.Step
	var client, upstream []harness.Exchange
	for range 3 {
		through := tapped(t, db.start(t))
		at := []harness.Address{db.start(t), through.at}
		if thorough() {
			at = append(at, db.start(t))
		}
		steps = runs(t, c, at...)
		client, upstream = through.exchanges(t)
		if !slices.ContainsFunc(steps, hung) {
			break
		}
		t.Log("a server waited a minute for itself; all of it again")
	}
	direct, proxied := steps[0], steps[1]
	result := harness.Result{Client: c.Name, Server: db.name, Version: db.version, Requests: harness.Requests(client)}
	for _, s := range direct {
		result.Steps = append(result.Steps, s.Name)
	}
	if thorough() {
		result.Direct = report(t, "two direct runs", harness.Compare(steps[2], direct, db.rules))
	}
	result.Differences = report(t, "through the proxy", harness.Compare(proxied, direct, db.rules))
	result.Bytes = report(t, "bytes before and behind the proxy", harness.CompareExchanges(client, upstream))
	if len(direct) == 0 || len(client) < len(direct)/2 {
		t.Errorf("%d steps, but %d calls crossed the taps", len(direct), len(client))
	}
	t.Logf("%d steps, %d calls crossed, %d different requests", len(direct), len(client), result.Requests)
	if err := harness.Record(result); err != nil {
		t.Error(err)
	}
	return client
}

func report(t *testing.T, what string, differences []harness.Difference) int {
	t.Helper()
	for i, d := range differences {
		if i == 10 {
			t.Errorf("%s: and %d more", what, len(differences)-i)
			break
		}
		t.Errorf("%s: %s", what, d)
	}
	return len(differences)
}

// taps is a proxy between two taps.
type taps struct {
	at               harness.Address // of the taps towards the client
	client, database []*harness.Tap
	stop             func()
}

// tapped puts a proxy with a tap on both sides in front of a server.
func tapped(t *testing.T, server harness.Address) *taps {
	t.Helper()
	p := &taps{}
	tap := func(upstream string) *harness.Tap {
		h, err := harness.NewTap(t.Context(), upstream)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	var o proxy.Options
	if server.GRPC != "" {
		behind := tap(server.GRPC)
		p.database = append(p.database, behind)
		o.GRPC = proxy.Endpoint{Listen: "127.0.0.1:0", Upstream: behind.Address()}
	}
	if server.REST != "" {
		behind := tap(strings.TrimPrefix(server.REST, "http://"))
		p.database = append(p.database, behind)
		o.REST = proxy.Endpoint{Listen: "127.0.0.1:0", Upstream: "http://" + behind.Address()}
	}
	at, stop := forward(t, o)
	p.stop = stop
	if at.GRPC != "" {
		before := tap(at.GRPC)
		p.client, p.at.GRPC = append(p.client, before), before.Address()
	}
	if at.REST != "" {
		before := tap(at.REST)
		p.client, p.at.REST = append(p.client, before), "http://"+before.Address()
	}
	return p
}

// forward runs a proxy until stop is called or the test ends.
func forward(t *testing.T, o proxy.Options) (at proxy.Addresses, stop func()) {
	t.Helper()
	o.Logger, o.Grace = slog.New(slog.DiscardHandler), 20*time.Second
	p, err := proxy.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return p.Addresses(), stop
}

// exchanges ends the proxy and returns the exchanges on each side.
func (p *taps) exchanges(t *testing.T) (client, database []harness.Exchange) {
	t.Helper()
	read := func(taps []*harness.Tap) (all []harness.Exchange) {
		for _, tap := range taps {
			if err := tap.Close(); err != nil {
				t.Error(err)
			}
			found, err := tap.Exchanges()
			if err != nil {
				t.Error(err)
			}
			all = append(all, found...)
		}
		return all
	}
	client = read(p.client)
	p.stop()
	return client, read(p.database)
}

func script(name string) string { return filepath.Join("clients", name) }
