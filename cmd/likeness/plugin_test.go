package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/plugin"
)

// serveTestScorer makes the test binary a scorer by the length of the payload. If its last argument
// is shuffled, it returns scores in the wrong order.
func serveTestScorer() {
	shuffled := os.Args[len(os.Args)-1] == "shuffled"
	d := plugin.Description{Name: "length", Version: "1", MaxItems: 100, Payload: true}
	err := plugin.Serve(d, func(_ context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
		scores := make([]float32, len(items))
		for i, item := range items {
			scores[i] = float32(len(item.Payload))
		}
		if shuffled {
			slices.Reverse(scores)
		}
		return scores, nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func TestPluginCheck(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	good := execute(t, "", "plugin", "check", "--env", "GORACE", "--output", "json", os.Args[0])
	var report pluginReport
	if err := json.Unmarshal([]byte(good.out), &report); good.code != 0 || err != nil || report.Failed != 0 || report.Name != "length" {
		t.Errorf("exit code %d, %v: %s%s", good.code, err, good.out, good.err)
	}
	bad := execute(t, "", "plugin", "check", "--env", "GORACE", os.Args[0], "shuffled")
	if bad.code != 1 || !strings.Contains(bad.out, "order        failed") || !strings.Contains(bad.err, "does not conform") {
		t.Errorf("a scorer that mixes its scores up: exit code %d\n%s%s", bad.code, bad.out, bad.err)
	}
	for _, args := range [][]string{{"no-such-plugin"}, {"/bin/cat"}} {
		if r := execute(t, "", append([]string{"plugin", "check"}, args...)...); r.code != 1 || r.out != "" {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.out)
		}
	}
}
