package config

import (
	"net/url"
	"reflect"
)

// maxPrefix bounds the text that is put before every text of an embedder. Instructions are longer
// than E5's words.
const maxPrefix = 4096

// EmbedderNames lists the embedders by name.
func (c *Config) EmbedderNames() []string { return mapKeys(reflect.ValueOf(c.Embedders)) }

// EmbedderToken reads the bearer token of an embedder. It returns what APIKey returns.
func (c *Config) EmbedderToken(embedder string) (Secret, error) {
	e := c.Embedders[embedder]
	return c.secret(join("embedders", embedder)+".token", e.TokenFile, e.TokenEnv)
}

// embedder checks an embedder. Error texts leave the address out: it may contain a password by
// mistake.
func (v *validator) embedder(name string, e Embedder) {
	at := join("embedders", name)
	v.name(at, name)
	v.service(at, e.URL, "https://host/v1/embeddings, or https://host/embed", e.TokenFile, e.TokenEnv)
	if n := len(e.QueryPrefix); n > maxPrefix {
		v.fail(at+".query_prefix", "it has %d bytes, at most %d; it is put before every query", n, maxPrefix)
	}
	if n := len(e.DocumentPrefix); n > maxPrefix {
		v.fail(at+".document_prefix", "it has %d bytes, at most %d; it is put before every document", n, maxPrefix)
	}
	if e.Shorten && e.Dimension == 0 {
		v.fail(at+".dimension", "shorten asks for vectors of this length; set it")
	}
}

// service checks the address and the credentials of a service over HTTP.
func (v *validator) service(at, address, example, tokenFile, tokenEnv string) {
	u, err := url.Parse(address)
	switch {
	case address == "":
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.fail(at+".url", "not the address of a service's method; write %s", example)
	case u.User != nil:
		v.fail(at+".url", "it holds credentials; give them as token_file or token_env")
	}
	if tokenFile != "" && tokenEnv != "" {
		v.fail(at+".token_env", "token_file is given too; keep one of them")
	}
}

// embeds checks the settings of a route that concern its embedder.
func (v *validator) embeds(at string, r Route) {
	if _, ok := v.c.Embedders[r.EmbedderName]; r.EmbedderName != "" && !ok {
		v.fail(at+".embedder", "there is no embedder %q%s", r.EmbedderName, hint(r.EmbedderName, v.c.EmbedderNames()))
	}
	if !r.Reembeds() {
		return
	}
	for _, wants := range []struct {
		lacks       bool
		key, remedy string
	}{
		{r.EmbedderName == "", "embedder", "reembed embeds items by the route's embedder; name the one of the new model"},
		{r.Placement != PlacementDerived, "placement", "reembed keeps new vectors in the route's companion; set placement: derived"},
		{r.Table != "", "table", "a table holds what the bridge makes of an item, never its new vector; remove it, or reembed"},
		{v.c.StateDir == "", "reembed", "a written item's new vector is dropped by following writes, which needs state_dir; set it"},
		{v.c.Stores[r.StoreName].Kind == "embedded", "reembed", "the collections of an embedded store never change; remove it"},
	} {
		if wants.lacks {
			v.fail(at+"."+wants.key, "%s", wants.remedy)
		}
	}
	for _, name := range v.c.RouteNames() {
		other := v.c.Routes[name]
		if other.StoreName != r.StoreName || other.Reembed.Text == r.Reembed.Text && other.EmbedderName == r.EmbedderName {
			continue
		}
		for _, companion := range r.companions() {
			if contains(other.companions(), companion) {
				v.fail(at+".companion", "reembed changes the vectors of %q, which route %q reads too; give one of them another companion, or both the same reembed.text and embedder",
					companion, name)
			}
		}
	}
}

// companions lists the companions of a route and of its versions.
func (r Route) companions() (all []string) {
	if r.Companion != "" {
		all = append(all, r.Companion)
	}
	for _, name := range r.VersionNames() {
		if c := r.Versions[name].Companion; c != "" {
			all = append(all, c)
		}
	}
	return all
}
