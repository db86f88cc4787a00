package bilinear

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

func TestOptionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		`form "cubic"`:       func(o *Options) { o.Form = "cubic" },
		`metric "p@10"`:      func(o *Options) { o.Measure = "p@10" },
		"rank is 0":          func(o *Options) { o.Form, o.Rank = "low_rank", 0 },
		"held out is 1":      func(o *Options) { o.HeldOut = 1 },
		"items held out":     func(o *Options) { o.ColdShare = 0.7 },
		`cold "maybe"`:       func(o *Options) { o.Cold = "maybe" },
		"cannot be guarded":  func(o *Options) { o.Cold, o.ColdShare = fit.ColdGuard, 0 },
		"needs form full":    func(o *Options) { o.Form, o.Reduce = "diagonal", 4 },
		"rank to cut to is ": func(o *Options) { o.Reduce = 9 },
		"energy is 2":        func(o *Options) { o.Energy = 2 },
		"scale -1":           func(o *Options) { o.Scale = -1 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.check(fit.Data{Items: rerank.NewMatrix(2, 8), Queries: rerank.NewMatrix(2, 8)}); !errors.Is(err, fit.ErrOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want fit.ErrOption with %q", err, want)
		}
	}
}
