package harness_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/proxy/harness"
)

// cache is where what the clients need is kept between runs.
const cache = "../../../.cache/clients"

// database starts fresh servers of one kind and version.
type database struct {
	name, version string
	rules         []harness.Rule
	start         func(t *testing.T) harness.Address
}

// program fails the test in CI, and skips it elsewhere, where a client's
// packages cannot be had.
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

// scenario runs a client on an address.
func scenario(t *testing.T, c harness.Client, at harness.Address) []harness.Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	steps, err := c.Run(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 {
		t.Fatal("the scenario has no steps")
	}
	return steps
}

// conform runs a client's scenario directly, directly again, and through the
// proxy, each on a fresh server, and compares: outcomes under the rules, bytes on
// both sides of the proxy.
func conform(t *testing.T, db database, c harness.Client) {
	t.Helper()
	result := harness.Result{Client: c.Name, Server: db.name, Version: db.version}
	direct := scenario(t, c, db.start(t))
	for _, s := range direct {
		result.Steps = append(result.Steps, s.Name)
	}
	again := harness.Compare(scenario(t, c, db.start(t)), direct, db.rules)
	report(t, "two direct runs", again)
	result.Direct = len(again)

	through := tapped(t, db.start(t))
	proxied := harness.Compare(scenario(t, c, through.at), direct, db.rules)
	report(t, "through the proxy", proxied)
	result.Differences = len(proxied)

	client, upstream := through.exchanges(t)
	bytes := harness.CompareExchanges(client, upstream)
	report(t, "bytes before and behind the proxy", bytes)
	result.Bytes, result.Requests = len(bytes), harness.Requests(client)
	t.Logf("%d steps, %d different requests, %d calls recorded", len(direct), result.Requests, len(client))
	if err := harness.Record(result); err != nil {
		t.Error(err)
	}
}

func report(t *testing.T, what string, differences []harness.Difference) {
	t.Helper()
	for i, d := range differences {
		if i == 10 {
			t.Errorf("%s: and %d more", what, len(differences)-i)
			return
		}
		t.Errorf("%s: %s", what, d)
	}
}

// taps are a proxy between taps.
type taps struct {
	at               harness.Address // of those towards the client
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

// forward runs a proxy until stop, or the test's end.
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

// exchanges ends the proxy and returns what crossed each side.
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
