package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// TestOutcomes: every error becomes the status that docs/reference/errors.md lists, and either its own text or one for
// everybody is shown.
func TestOutcomes(t *testing.T) {
	for _, o := range outcomes {
		got := outcomeOf(fmt.Errorf("canary: %w", o.is))
		if got != o {
			t.Errorf("%v becomes %s, want %s", o.is, got.reason, o.reason)
		}
		for _, other := range outcomes {
			if other.reason == o.reason && other.code == o.code && (other.retry != o.retry || other.public != o.public) {
				t.Errorf("%s is to be tried again after %s and after %s, public %t and %t", o.reason, o.retry, other.retry, o.public, other.public)
			}
		}
		if o.public == (privateTexts[o.reason] != "") {
			t.Errorf("%s is public: %t, and has the text %q for everybody", o.reason, o.public, privateTexts[o.reason])
		}
	}
	want, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := WriteReference(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/reference/errors.md lists other errors, %v; run tools/generate.sh", err)
	}
}

var errFailed = errors.New("failed")

// failingAdmin is an Admin whose every call fails.
type failingAdmin struct{}

func (failingAdmin) List(string) ([]rollout.Info, error) { return nil, errFailed }

func (failingAdmin) Activate(context.Context, string, string, bool) (rollout.Activation, error) {
	return rollout.Activation{}, errFailed
}

func (failingAdmin) RollBack(context.Context, string) (rollout.Activation, error) {
	return rollout.Activation{}, errFailed
}

func (failingAdmin) Collect(context.Context, string, bool) ([]rollout.Garbage, error) {
	return nil, errFailed
}

// TestAdminCallsThatFail: no call answers as if it had been carried out.
func TestAdminCallsThatFail(t *testing.T) {
	a := admin{services: &services{admin: failingAdmin{}, openAdmin: true, log: slog.New(slog.DiscardHandler), reconcile: func(context.Context, string) (follow.Drift, error) {
		return follow.Drift{}, errFailed
	}}}
	for name, call := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, err := a.ListVersions(ctx, &likenessv1.ListVersionsRequest{})
			return err
		},
		"activate": func(ctx context.Context) error {
			_, err := a.ActivateVersion(ctx, &likenessv1.ActivateVersionRequest{})
			return err
		},
		"roll back": func(ctx context.Context) error { _, err := a.RollBack(ctx, &likenessv1.RollBackRequest{}); return err },
		"collect": func(ctx context.Context) error {
			_, err := a.CollectVersions(ctx, &likenessv1.CollectVersionsRequest{})
			return err
		},
		"reconcile": func(ctx context.Context) error {
			_, err := a.Reconcile(ctx, &likenessv1.ReconcileRequest{})
			return err
		},
	} {
		if err := call(t.Context()); !errors.Is(err, errFailed) {
			t.Errorf("%s: %v, want the error of the call", name, err)
		}
		a.openAdmin = false
		if err := call(t.Context()); !errors.Is(err, errAdmin) {
			t.Errorf("%s of somebody who may not: %v", name, err)
		}
		a.openAdmin = true
	}
}

// TestQueriesThatCannotBeRead: vectors of different lengths are refused before the search.
func TestQueriesThatCannotBeRead(t *testing.T) {
	ragged := &likenessv1.Query{Vectors: []*likenessv1.Vector{{Values: []float32{1}}, {Values: []float32{1, 2}}}}
	if _, err := (searchService{services: &services{}}).answer(t.Context(), &likenessv1.SearchRequest{Query: ragged}); !errors.Is(err, plan.ErrRequest) {
		t.Errorf("%v, want ErrRequest", err)
	}
}

// TestServicesOfAServer: each option reaches the services that all calls share.
func TestServicesOfAServer(t *testing.T) {
	s, err := New(Options{
		Models: func() []*model.Model { return nil }, Admin: failingAdmin{}, OpenAdmin: true, Events: events.Book{"r": nil}, Logger: slog.New(slog.DiscardHandler),
		Reconcile: func(context.Context, string) (follow.Drift, error) { return follow.Drift{}, nil }, Limits: Limits{MaxMessageBytes: 1 << 20, MaxBatch: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Drain(time.Second)
	if got := s.shared; got.models == nil || got.admin == nil || !got.openAdmin || len(got.events) != 1 || got.log == nil || got.reconcile == nil || got.limits.Load().MaxBatch != 3 {
		t.Errorf("the services lack an option: %+v", got)
	}
}

// TestAdjustedTokens: a server that runs takes another tokens file, and no file that cannot be read.
func TestAdjustedTokens(t *testing.T) {
	s := &Server{shared: &services{log: slog.New(slog.DiscardHandler)}}
	s.shared.limits.Store(&Limits{})
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if _, err := s.Adjust(Limits{}, file); !errors.Is(err, ErrTokens) {
		t.Errorf("no such file: %v", err)
	}
	if err := os.WriteFile(file, []byte("- {name: reader, token: reader}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := s.Adjust(Limits{}, file)
	if err != nil {
		t.Fatal(err)
	}
	if s.shared.tokens.Load() != nil {
		t.Error("the file counts before Apply")
	}
	if a.Apply(); s.shared.tokens.Load() == nil {
		t.Error("everybody is served still")
	}
}
