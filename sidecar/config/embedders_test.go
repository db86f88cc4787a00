package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
)

const embedded = `  words: {store: main, collection: c, model: taste, placement: stored, embedder: mini}
embedders:
  mini:
    url: https://models.internal/v1/embeddings
    model: all-minilm
    token_env: MODELS_TOKEN
    cache: 1MiB
`

// An embedder starts from its defaults, and its token is read and never shown.
func TestEmbedders(t *testing.T) {
	c := parse(t, small+embedded, []string{"MODELS_TOKEN=canary"})
	e := c.Embedders["mini"]
	if r := c.Routes["words"]; r.EmbedderName != "mini" || e.Form != "auto" || e.Batch != 32 || e.Cache != 1<<20 || e.BreakAfter != 5 {
		t.Errorf("%+v of %q", e, r.EmbedderName)
	}
	token, err := c.EmbedderToken("mini")
	if err != nil || token.Reveal() != "canary" || strings.Contains(fmt.Sprint(token), "canary") {
		t.Errorf("token %v, %v", token, err)
	}
	var out strings.Builder
	if err := c.Print(&out); err != nil || strings.Contains(out.String(), "canary") || !strings.Contains(out.String(), "MODELS_TOKEN") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, err := parse(t, small+embedded, nil).EmbedderToken("mini"); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "MODELS_TOKEN") {
		t.Errorf("a token that is not there: %v", err)
	}
}

func TestEmbedderErrorsNameThePlace(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"no URL", "embedders: {e: {model: m}}", "embedders.e.url: a value is required"},
		{"no scheme", "embedders: {e: {url: 'h/v1/embeddings'}}", "embedders.e.url: not the address of a service's method"},
		{"a password in the URL", "embedders: {e: {url: 'https://canary:canary@h/embed'}}", "embedders.e.url: it holds credentials"},
		{"form", "embedders: {e: {url: 'https://h/embed', form: cohere}}", `"cohere" is not one of auto, openai, tei`},
		{"two tokens", "embedders: {e: {url: 'https://h/embed', token_file: f, token_env: E}}", "embedders.e.token_env: token_file is given too"},
		{"an inline token", "embedders: {e: {url: 'https://h/embed', token: canary}}", `unknown key "token" in embedders.e`},
		{"no length", "embedders: {e: {url: 'https://h/v1/embeddings', model: m, shorten: true}}", "embedders.e.dimension: shorten asks"},
		{"a long prefix", "embedders: {e: {url: 'https://h/embed', query_prefix: " + strings.Repeat("x", 4097) + "}}", "embedders.e.query_prefix: it has 4097 bytes, at most 4096"},
		{"no texts", "embedders: {e: {url: 'https://h/embed', batch: 0}}", "embedders.e.batch: 0 is too small, at least 1"},
		{"reembed without an embedder", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, reembed: {text: t}}", "routes.b.embedder: reembed embeds items"},
		{"reembed of stored vectors", small + "  b: {store: main, collection: c, model: taste, placement: stored, reembed: {text: t}}", "routes.b.placement: reembed keeps new vectors"},
		{"reembed with a table", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, table: f, reembed: {text: t}}", "routes.b.table: a table holds"},
		{"reembed without a state folder", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, reembed: {text: t}}", "routes.b.reembed: a written item's new vector"},
		{"a companion that another route reads", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, embedder: e, reembed: {text: t}}\n" +
			"  b2: {store: main, collection: c, model: taste, placement: derived, companion: d}\nembedders: {e: {url: 'https://h/embed'}}\nstate_dir: s",
			`routes.b.companion: reembed changes the vectors of "d", which route "b2" reads too`},
		{"a companion that another route's version reads", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, embedder: e, reembed: {text: t}}\n" +
			"  b2: {store: main, collection: c, model: taste, placement: derived, active: v, versions: {v: {companion: d}}}\nembedders: {e: {url: 'https://h/embed'}}\nstate_dir: s",
			`routes.b.companion: reembed changes the vectors of "d", which route "b2" reads too`},
		{"no rate", small + "  b: {store: main, collection: c, model: taste, placement: derived, companion: d, reembed: {text: t, rate: 0}}", "routes.b.reembed.rate: 0 is too small"},
		{"no such embedder", small + "  b: {store: main, collection: c, model: taste, placement: stored, embedder: mni}\nembedders: {mini: {url: 'https://h/embed'}}",
			`routes.b.embedder: there is no embedder "mni"; did you mean "mini"?`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Parse("likeness.yaml", []byte(tc.text+"\n"), nil, nil)
			if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Error("the error repeats a secret")
			}
		})
	}
}
