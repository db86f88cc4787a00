package trial

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
)

// TestStatusStays: a status does not change while its experiment goes on, since others read it meanwhile.
func TestStatusStays(t *testing.T) {
	state, err := begin(config.Experiment{Candidate: "v2", Kind: "interleave", Alpha: 0.05, Session: time.Minute, Share: 0.5}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	status := StatusOf("r", state)
	before := *status.Test
	before.Up, before.Down = slices.Clone(before.Up), slices.Clone(before.Down)
	if _, err := state.Test.Add(1); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*status.Test, before) || reflect.DeepEqual(*state.Test, before) {
		t.Errorf("the status has %+v, the state %+v; before there was %+v", status.Test, state.Test, before)
	}
}
