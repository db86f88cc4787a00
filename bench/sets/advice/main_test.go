package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// found is what three similarities found for 2,000 queries: the plain one half of them, the others these shares.
func found(small, large float64) Found {
	f := Found{HeldOut: 1000, Models: []Model{{Name: "plain"}, {Name: "small", Numbers: 10}, {Name: "large", Numbers: 100}}}
	for q := range 2000 {
		f.Wanted = append(f.Wanted, int32(q))
		for i, share := range []float64{0.5, small, large} {
			rank := 0.0
			if float64(q) < share*2000 {
				rank = 1
			}
			f.Models[i].Ranks = append(f.Models[i].Ranks, rank)
		}
	}
	return f
}

func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		found   Found
		advised string
	}{
		"the large one is far better":     {found(0.6, 0.9), "large"},
		"the small one is as good":        {found(0.9, 0.9), "small"},
		"neither is better":               {found(0.5, 0.5), "plain"},
		"both are worse than what is had": {found(0.2, 0.3), "plain"},
	} {
		counts, err := c.found.count(20)
		if err != nil || counts.Right != 20 || counts.Wrong != 0 || counts.Advised[c.advised] != 20 {
			t.Errorf("%s: %+v, %v, want right advice to take %s", name, counts, err, c.advised)
		}
	}
}

func TestAdviceIsWrong(t *testing.T) {
	f := found(0.6, 0.9)
	for name, right := range map[string]bool{"plain": false, "small": false, "large": true} {
		if f.isRight(name) != right {
			t.Errorf("%s: right is %t", name, !right)
		}
	}
}

func TestRunChecksItsInput(t *testing.T) {
	var out bytes.Buffer
	if err := run(strings.NewReader(`{"models":[{"name":"plain","ranks":[1,0]}],"wanted":[3]}`), &out); err == nil || !strings.Contains(err.Error(), "plain") {
		t.Errorf("%v, want the name of the model", err)
	}
	text, err := json.Marshal(found(0.9, 0.9))
	if err != nil {
		t.Fatal(err)
	}
	var counts Counts
	if err := run(bytes.NewReader(text), &out); err != nil || json.Unmarshal(out.Bytes(), &counts) != nil || counts.Draws != draws {
		t.Errorf("%+v, %v", counts, err)
	}
}
