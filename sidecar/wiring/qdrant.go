package wiring

import (
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/sidecar/config"
)

func openQdrant(c *config.Config, name string) (guard.Server, error) {
	o, err := qdrantOptions(c, name)
	if err != nil {
		return nil, err
	}
	return qdrant.Open(o)
}

func qdrantOptions(c *config.Config, name string) (o qdrant.Options, err error) {
	s := c.Stores[name]
	key, err := c.APIKey(name)
	if err != nil {
		return o, err
	}
	secure, err := StoreTLS(s.TLS)
	return qdrant.Options{Address: s.Address, APIKey: key.Reveal(), TLS: secure, Limits: limits(s.Limits)}, err
}
