package wiring

import (
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/sidecar/config"
)

func openQdrant(c *config.Config, name string) (guard.Server, error) {
	s := c.Stores[name]
	key, err := c.APIKey(name)
	if err != nil {
		return nil, err
	}
	secure, err := StoreTLS(s.TLS)
	if err != nil {
		return nil, err
	}
	return qdrant.Open(qdrant.Options{Address: s.Address, APIKey: key.Reveal(), TLS: secure, Limits: limits(s.Limits)})
}
