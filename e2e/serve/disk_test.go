package serve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/smalldisk"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// A sidecar that starts while the disk of its state and its table is full serves: it answers
// searches and forwards writes. Once there is room, all writes show, although none was recorded.
func TestStartsOnAFullDisk(t *testing.T) {
	for name, before := range map[string]bool{"first start": false, "after an end in order": true} {
		t.Run(name, func(t *testing.T) {
			disk, err := smalldisk.New(t, 1<<20)
			if err != nil {
				t.Skipf("this machine makes no small file system: %v", err)
			}
			db := filled(t, servers.Options{})
			f := followed{db: db, disk: disk}
			b, err := os.ReadFile(tableOf(t, db))
			must2(t, err)
			must2(t, os.WriteFile(filepath.Join(disk, "things.table"), b, 0o600))
			if before {
				t.Run("an end in order", func(t *testing.T) { f.start(t).becomes(t, ofTheTable) })
			}
			filler := smalldisk.Fill(t, disk)
			p := f.start(t)
			if code, body := p.admin(t, "/readyz"); code != 200 || !strings.Contains(body, "route things: its writes are forwarded without a record: the journal cannot be written") {
				t.Errorf("%d %s", code, body)
			}
			if _, body := p.admin(t, "/metrics"); !strings.Contains(body, `likeness_follow_journal_failed{route="things"} 1`) {
				t.Error("no metric says that the journal fails")
			}
			if _, body := p.admin(t, "/"); !strings.Contains(body, "no space left on device") {
				t.Error("the page does not say that the disk is full")
			}
			first, _ := p.search(t)
			best := p.write(t)
			// Meanwhile all rows are compared with the table. Nothing is proved before that ends.
			isRight := func(state string, got []hit) bool {
				return len(got) == len(first) && (state == unproved || strings.HasPrefix(state, ofTheTable) && got[0].id == best)
			}
			if got, state := p.search(t); !isRight(state, got) {
				t.Errorf("a write that was not followed: %q, %v", state, got)
			}
			code, state, text := post(t, p.rest, "routed/points/search", plainBody, key)
			if got := restHits(t, resultOf(t, code, text)); !isRight(state, got) {
				t.Errorf("a write that was not followed, over REST: %q, %v", state, got)
			}
			must2(t, os.Remove(filler))
			if got := p.becomes(t, ofTheTable); got[0].id != best {
				t.Errorf("%v, want %s first", got, best)
			}
			// The journal tries the disk again once a second.
			for late := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
				_, body := p.admin(t, "/readyz")
				if !strings.Contains(body, "without a record") {
					break
				}
				if time.Now().After(late) {
					t.Errorf("there is room: %s", body)
					break
				}
			}
		})
	}
}

// followed is a database before which sidecars follow writes, with all that they
// remember on one disk.
type followed struct {
	db   *servers.Server
	disk string
}

type follower struct {
	proxied
	at serve.Addresses
}

func (f *followed) start(t *testing.T) *follower {
	t.Helper()
	at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: table, table: %q, table_live: true, strategy: scan}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, filepath.Join(f.disk, "state"), f.db.Address, filepath.Join(f.disk, "things.table"), f.db.REST))
	return &follower{at: at, proxied: proxied{
		direct: connect(t, f.db.Address), restDirect: f.db.REST, api: connect(t, at.GRPC), proxy: connect(t, at.Proxy.GRPC), rest: "http://" + at.Proxy.REST,
	}}
}

func (p *follower) admin(t *testing.T, path string) (code int, body string) {
	t.Helper()
	return (&sidecar{at: p.at}).get(t, path)
}

// write writes, through the proxy, a row that ranks first, and returns its id.
func (p *follower) write(t *testing.T) (id string) {
	t.Helper()
	wait := true
	best := &qdrant.PointStruct{Id: qdrant.NewIDNum(1 << 41), Vectors: qdrant.NewVectors(-1000, 1000, 1000, 1000)}
	_, err := qdrant.NewPointsClient(p.proxy).Upsert(asUser(t.Context()), &qdrant.UpsertPoints{CollectionName: "routed", Wait: &wait, Points: []*qdrant.PointStruct{best}})
	must2(t, err)
	return "2199023255552"
}

// search is one search through the proxy.
func (p *follower) search(t *testing.T) (hits []hit, state string) {
	t.Helper()
	var trailer metadata.MD
	r, err := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), plainSearch("routed"), grpc.Trailer(&trailer))
	must2(t, err)
	return hitsOf(r.GetResult()), strings.Join(trailer.Get("likeness-status"), "|")
}

// becomes searches until the state of answers begins with want.
func (p *follower) becomes(t *testing.T, want string) []hit {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, state := p.search(t)
		if strings.HasPrefix(state, want) {
			return got
		}
		<-tick.C
	}
}
