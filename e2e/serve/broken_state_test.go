package serve_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/statedir"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// TestDamagedStateStopsNothing damages every file that a sidecar writes into state_dir, and the key file
// of events. The sidecar starts, serves its routes, and names each file that it cannot use. Without the
// damage it names none.
func TestDamagedStateStopsNothing(t *testing.T) {
	db := filled(t, servers.Options{})
	table, err := os.ReadFile(tableOf(t, db))
	must2(t, err)
	dir := damagedFolder(t, db, table, true)
	file := filepath.Join(dir, "likeness.yaml")
	text, err := os.ReadFile(file)
	must2(t, err)
	text = bytes.Replace(text, []byte("active: v1,"), []byte("active: v1, events: {share: 1, key_file: key},"), 1)
	text = bytes.Replace(text, []byte("model: b, placement: stored"), []byte("versions: {v1: {model: b}, v2: {model: a}}, active: v1, placement: stored, events: {share: 1}, experiment: {candidate: v2, feedback: {click: 1}}"), 1)
	must2(t, os.WriteFile(file, text, 0o600))
	similarity, err := model.Open(filepath.Join(dir, "a.safetensors"))
	must2(t, err)
	state := filepath.Join(dir, "state")
	collection := statedir.Collection(statedir.Store(state, "main"), "routed")
	calibration := calibrate.Path(state, "things", similarity.Version)
	files := []string{
		filepath.Join(dir, "key"), filepath.Join(statedir.Events(state, "things"), "00000000000000000001.events"), filepath.Join(statedir.Events(state, "others"), "key"),
		filepath.Join(collection, "record.json"), filepath.Join(collection, "journal", "00000000000000000001.journal"),
		filepath.Join(statedir.Route(state, "others"), "experiment.json"), calibration, filepath.Join(state, "lock"),
	}
	must2(t, os.WriteFile(filepath.Join(dir, "key"), []byte("0123456789abcdef"), 0o600))
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprintf("damaged %t", damaged), func(t *testing.T) {
			for _, name := range files {
				if damaged {
					must2(t, os.RemoveAll(name))
					must2(t, os.MkdirAll(name, 0o700)) // a folder cannot be read as a file, by root either
				}
			}
			d := startDamaged(t, db, dir)
			for _, route := range []string{"things", "others"} {
				a, err := likenessv1.NewSearchServiceClient(d.api).Search(t.Context(), &likenessv1.SearchRequest{Route: route, K: 1, Query: &likenessv1.Query{Vector: query}}, grpc.WaitForReady(true))
				if err != nil || len(a.GetHits()) != 1 || a.GetDegraded() != nil {
					t.Errorf("route %s: %v, %v", route, a, err)
				}
			}
			_, ready := d.admin(t, http.MethodGet, "/readyz")
			_, status := d.admin(t, http.MethodGet, "/status.json")
			said := d.log.String() + ready + status
			for _, name := range files {
				if strings.Contains(said, name) != damaged {
					t.Errorf("%s is named: %t, want %t", name, !damaged, damaged)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
			if !damaged {
				return
			}
			c, err := config.Load(config.Source{File: file, Environ: []string{"QDRANT_KEY=" + key}})
			must2(t, err)
			if _, err := serve.Check(t.Context(), c, serve.CheckOptions{}); err == nil || !strings.Contains(err.Error(), "routes.things.events.key_file") {
				t.Errorf("config validate: %v", err)
			}
		})
	}
}
