package rollout_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestDamagedVersionsAreRefused truncates and flips the files of a version and has it
// activated, by whoever may: each is refused, and the version before goes on to answer.
// LIKENESS_SOAK=1 makes it 10,000 times.
func TestDamagedVersionsAreRefused(t *testing.T) {
	times := 60
	if os.Getenv("LIKENESS_SOAK") != "" {
		times = 10_000
	}
	w := newWorld(t)
	s := w.start(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"m2.safetensors", "v2.table"} {
		good, err := os.ReadFile(w.path(name))
		must(t, err)
		for n := range times / 2 {
			bad := bytes.Clone(good)
			if n%4 == 0 {
				bad = bad[:rng.IntN(len(bad))]
			} else {
				bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			}
			must(t, os.WriteFile(w.path("damaged"), bad, 0o600))
			must(t, os.Rename(w.path("damaged"), w.path(name)))
			if _, err := s.admin.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: "things", Version: "v2", Force: true}); err == nil {
				t.Fatalf("damage %d of %s is served", n, name)
			}
			if n%20 == 0 {
				if v := w.serving(t, s); v != "v1" {
					t.Fatalf("after damage %d of %s %s is served", n, name, v)
				}
			}
		}
		must(t, os.WriteFile(w.path(name), good, 0o600))
	}
	if v := w.serving(t, s); v != "v1" {
		t.Errorf("%s is served", v)
	}
	s.activate(t, "v2")
	t.Logf("reliability row=21 figure=%d damaged model and table files, all refused; the version before answered all along", times)
}
