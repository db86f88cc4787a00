package search

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
)

// TestLogsHideFilters: if a store's error repeats parts of a filter, no key and no value of it gets
// into a log, but the caller can read it.
func TestLogsHideFilters(t *testing.T) {
	for name, tc := range map[string]struct{ filter, text, keep string }{
		"Qdrant's strict mode":   {`{"must":[{"key":"patient.name","match":{"value":"Ada"}}]}`, `Index required but not found for "patient.name" of one of the following types: [keyword]`, "Index required"},
		"the value":              {`{"must":[{"key":"k","match":{"value":"Ada Lovelace"}}]}`, `bad value 'Ada Lovelace' in filter`, "bad value"},
		"a word of the value":    {`{"must":[{"key":"k","match":{"value":"Ada Lovelace"}}]}`, `bad value Lovelace`, "bad value"},
		"escaped":                {`{"must":[{"key":"gr\u00f6\u00dfe","match":{"value":1}}]}`, `no field größe`, "no field"},
		"a number":               {`{"must":[{"key":"k","range":{"gt":8675309}}]}`, `8675309 is out of range`, "out of range"},
		"Milvus's expression":    {`salary > 90000 and name like "Ada%"`, `cannot parse expression: salary > 90000 and name like "Ada%", error: field salary not exist`, "cannot parse expression"},
		"a value of short parts": {`code == al-7b`, `cannot parse expression: code == al-7b`, "cannot parse expression"},
		"a value with the key":   {`{"must":[{"key":"Ada","match":{"value":"Lovelace-Ada"}}]}`, `no Lovelace-Ada`, "no [filter]"},
		"a long key":             {`{"must":[{"key":"` + strings.Repeat("k", 3<<20) + `","match":{"value":1}}]}`, "no " + strings.Repeat("k", 3<<20), "store_error"},
		"a long text":            {`{"must":[{"key":"secretive","match":{"value":1}}]}`, strings.Repeat("secretive ", 1000), "left out"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("search: %w", withFilter(fmt.Errorf("%w: %s", adapters.ErrStore, tc.text), tc.filter))
			if !errors.Is(err, adapters.ErrStore) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("the caller reads %.200v", err)
			}
			var own interface{ Redact(text string) string } // as telemetry.Redactor
			if !errors.As(err, &own) {
				t.Fatal("a log would show all")
			}
			shown := own.Redact(err.Error())
			for _, secret := range []string{"patient", "Ada", "Lovelace", "größe", "8675309", "salary", "90000", "al-7b", "kkkk", "secretive"} {
				if strings.Contains(shown, secret) {
					t.Errorf("%q is in %s", secret, shown)
				}
			}
			if !strings.Contains(shown, tc.keep) && !strings.Contains(shown, "left out") {
				t.Errorf("nothing is left in %s", shown)
			}
		})
	}
}
