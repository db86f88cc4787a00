package model

import (
	"encoding/json"
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// build makes a similarity from the configuration and tensors of a kind.
func build(kind rerank.Kind, config json.RawMessage, t tensor.Set) (rerank.Similarity, error) {
	switch kind {
	case rerank.KindDot:
		return construct(dot.New, config, t)
	case rerank.KindBilinear:
		return construct(bilinear.New, config, t)
	case rerank.KindMoL:
		return construct(mol.New, config, t)
	case rerank.KindMaxSim:
		return construct(maxsim.New, config, t)
	case rerank.KindLate:
		return construct(late.New, config, t)
	case rerank.KindRBE:
		return construct(rbe.New, config, t)
	default:
		return nil, fmt.Errorf("%w: the kind %q is not known", rerank.ErrModel, kind)
	}
}

// construct decodes a kind's Config and calls the kind's New with it.
func construct[C any, S rerank.Similarity](
	newKind func(C, tensor.Set) (S, error), config json.RawMessage, t tensor.Set,
) (rerank.Similarity, error) {
	var c C
	if err := decodeStrict(config, &c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return newKind(c, t)
}
