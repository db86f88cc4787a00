package chaos_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// fault breaks something for a while.
type fault struct {
	name   string
	target string              // at most one fault at a time has this target
	lanes  func(*lane) bool    // lanes that it affects
	begin  func() (end func()) // end heals it
}

func of(s *sidecar) func(*lane) bool { return func(l *lane) bool { return l.side == s } }

func needs(store string) func(*lane) bool {
	return func(l *lane) bool { return l.store == store }
}

func (w *world) faults(t *testing.T) []fault {
	var all []fault
	for store, server := range map[string]*servers.Server{"qdrant": w.qdrant, "milvus": w.milvus} {
		all = append(all, storeFaults(t, w, store, server)...)
	}
	for _, s := range w.sidecars() {
		all = append(all, w.processFaults(t, s)...)
	}
	for name, r := range w.links {
		all = append(all, w.linkFaults(name, r)...)
	}
	for _, s := range w.sidecars() {
		for _, lie := range lies {
			all = append(all, w.lieFault(s, lie))
		}
	}
	if w.disk != "" {
		all = append(all, w.diskFault(t))
	}
	if w.clocks {
		for _, s := range w.sidecars() {
			all = append(all, w.clockFault(t, s))
		}
	}
	if only, err := regexp.Compile(os.Getenv("CHAOS_FAULTS")); err != nil {
		t.Fatal(err)
	} else {
		all = slices.DeleteFunc(all, func(f fault) bool { return !only.MatchString(f.name + " of " + f.target) })
	}
	if len(all) == 0 {
		t.Fatal("no fault is named so")
	}
	slices.SortFunc(all, func(a, b fault) int { return strings.Compare(a.name+a.target, b.name+b.target) }) // so that the order depends on the seed and not on maps
	return all
}

func storeFaults(t *testing.T, w *world, store string, server *servers.Server) []fault {
	t.Helper()
	return []fault{
		{name: "store killed", target: store, lanes: needs(store), begin: func() func() {
			w.ledger.inject("store killed")
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
			return func() {
				if err := server.Restart(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}},
		{name: "store stopped", target: store, lanes: needs(store), begin: func() func() {
			w.ledger.inject("store stopped")
			_ = server.Signal(syscall.SIGSTOP)
			return func() { _ = server.Signal(syscall.SIGCONT) }
		}},
	}
}

func (w *world) processFaults(t *testing.T, s *sidecar) []fault {
	t.Helper()
	all := []fault{{name: "sidecar stopped", target: s.name, lanes: of(s), begin: func() func() {
		w.ledger.inject("sidecar stopped")
		s.epoch.Add(1)
		s.signal(syscall.SIGSTOP)
		return func() {
			s.signal(syscall.SIGCONT)
			s.epoch.Add(1)
		}
	}}}
	if s != w.two {
		all = append(all, fault{name: "sidecar killed", target: s.name, lanes: of(s), begin: func() func() {
			w.ledger.inject("sidecar killed")
			s.epoch.Add(1)
			s.kill()
			return func() {
				if err := s.start(); err != nil {
					t.Error(err)
				}
				s.epoch.Add(1)
			}
		}})
	}
	if s == w.three {
		return all
	}
	ranked := func(l *lane) bool { return l.side == s && strings.HasSuffix(l.name, "ranked") }
	for name, sig := range map[string]syscall.Signal{"plugin killed": syscall.SIGKILL, "plugin stopped": syscall.SIGSTOP} {
		all = append(all, fault{name: name, target: s.name, lanes: ranked, begin: func() func() {
			alive, _ := s.children()
			for _, pid := range alive {
				w.ledger.inject(name)
				_ = syscall.Kill(pid, sig)
			}
			return func() {}
		}})
	}
	return all
}

const halfOpenLink = "half-open link"

// crosses reports whether the answers of a lane need the named link.
func crosses(link string, l *lane) bool {
	side, kind, _ := strings.Cut(link, " ")
	return l.side.name == side && l.store != "" && (kind == "grpc" || strings.HasSuffix(l.name, "rest"))
}

// half returns the lanes with half-open links that were not given up yet.
func (w *world) half(lanes []*lane) []string {
	var names []string
	for link, r := range w.links {
		if !r.swallows() {
			continue
		}
		for _, l := range lanes {
			if crosses(link, l) {
				names = append(names, l.name)
			}
		}
	}
	return names
}

func (w *world) linkFaults(name string, r *relay) []fault {
	feels := func(l *lane) bool { return crosses(name, l) }
	var all []fault
	for what, label := range map[trouble]string{slow: "slow link", hold: "held link", resetAll: "link reset", cut: "link cut", halfOpen: halfOpenLink} {
		all = append(all, fault{name: label, target: "link " + name, lanes: feels, begin: func() func() {
			return r.begin(what, time.Duration(20+rand.IntN(400))*time.Millisecond)
		}})
	}
	return all
}

// lieFault redirects a sidecar's link to a liar for a while.
func (w *world) lieFault(s *sidecar, lie string) fault {
	store := "qdrant"
	direct := w.qdrant.Address
	if s == w.three {
		store, direct = "milvus", w.milvus.Address
	}
	link := w.links[s.name+" grpc"]
	return fault{name: "lie: " + lie, target: "liar " + store, lanes: func(l *lane) bool { return l.side == s && l.store != "" }, begin: func() func() {
		end := w.liars[store].begin(lie)
		link.turn(w.lying[store])
		return func() {
			end()
			link.turn(direct)
		}
	}}
}

// diskFault fills the disk on which sidecar one keeps its state.
func (w *world) diskFault(t *testing.T) fault {
	t.Helper()
	file := filepath.Join(w.disk, "filler")
	return fault{name: "full disk", target: "disk", lanes: func(*lane) bool { return false }, begin: func() func() {
		w.ledger.inject("full disk")
		f, err := os.Create(file)
		if err != nil {
			t.Error(err)
			return func() {}
		}
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		_ = f.Close()
		return func() { _ = os.Remove(file) }
	}}
}

// plan says how often faults come, and for how long.
type plan struct {
	span              time.Duration
	shortest, least   time.Duration // a fault, the pause between two
	longest, greatest time.Duration
	once              bool // only one fault of each kind
}

// unleash injects faults until the time is over, up to three at a time and each kind in turn. It
// returns when all are healed.
func (w *world) unleash(ctx context.Context, t *testing.T, p plan, lanes []*lane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, p.span)
	defer cancel()
	all := w.faults(t)
	var busy sync.Map
	var running sync.WaitGroup
	slots := make(chan struct{}, 3)
	var deck []fault
	for ctx.Err() == nil {
		if len(deck) == 0 {
			if deck = w.shuffled(all); p.once {
				deck = firstOfEachKind(deck)
			}
		}
		f := deck[0]
		deck = deck[1:]
		d, pause := between(w.rng, p.shortest, p.longest), between(w.rng, p.least, p.greatest)
		if _, taken := busy.LoadOrStore(f.target, true); taken {
			deck = append(deck, f)
			pause = p.least
		} else {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				defer busy.Delete(f.target)
				w.happen(ctx, f, d, lanes)
			})
		}
		rest(ctx, pause)
		if p.once && len(deck) == 0 {
			break
		}
	}
	running.Wait()
}

func (w *world) happen(ctx context.Context, f fault, d time.Duration, lanes []*lane) {
	var felt []string
	for _, l := range lanes {
		if f.lanes(l) {
			felt = append(felt, l.name)
		}
	}
	w.ledger.hurt(f.name, felt)
	end := f.begin()
	rest(ctx, d)
	end()
	w.ledger.heal(f.name, felt, w.half(lanes))
}

// shuffled returns faults in random order, each kind once before any comes again.
func (w *world) shuffled(all []fault) []fault {
	kinds := map[string][]fault{}
	for _, i := range w.rng.Perm(len(all)) {
		kinds[all[i].name] = append(kinds[all[i].name], all[i])
	}
	var names []string
	for _, f := range all {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	var deck []fault
	for len(deck) < len(all) {
		for _, i := range w.rng.Perm(len(names)) {
			if of := kinds[names[i]]; len(of) > 0 {
				deck, kinds[names[i]] = append(deck, of[0]), of[1:]
			}
		}
	}
	return deck
}

func firstOfEachKind(deck []fault) []fault {
	seen := map[string]bool{}
	return slices.DeleteFunc(deck, func(f fault) bool {
		was := seen[f.name]
		seen[f.name] = true
		return was
	})
}

// between returns a random duration, more often a short one.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), rng.Float64()))
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
