package qdrant

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// TestReadArguments: the arguments of a search's path that a route can honour, and those
// with which it passes.
func TestReadArguments(t *testing.T) {
	for query, c := range map[string]struct {
		timeout    time.Duration
		consistent bool
		passes     bool
	}{
		"":                                 {},
		"timeout=3":                        {timeout: 3 * time.Second},
		"consistency=all":                  {consistent: true},
		"timeout=1&consistency=2":          {timeout: time.Second, consistent: true},
		"timeout=4294967295":               {timeout: (1 << 30) * time.Second},
		"timeout=4294967296":               {passes: true},
		"timeout=0":                        {passes: true},
		"timeout=":                         {passes: true},
		"timeout=1&timeout=2":              {passes: true},
		"consistency=all&consistency=none": {passes: true},
		"ordering=weak":                    {passes: true},
		"timeout=%zz":                      {passes: true},
	} {
		r := httptest.NewRequest(http.MethodPost, "/collections/c/points/search", nil)
		r.URL.RawQuery = query
		var asked routing.Asked
		consistent, err := (&restCall{in: r}).readArguments(&asked)
		if c.passes {
			if err == nil {
				t.Errorf("%q does not pass", query)
			}
			continue
		}
		if err != nil || consistent != c.consistent || asked.Timeout != c.timeout {
			t.Errorf("%q: a timeout of %s, consistent %v, %v; want %+v", query, asked.Timeout, consistent, err, c)
		}
	}
}
