package hosted_test

import (
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// TestMemoryComesBack: what models and tables take is free again after they are, as on a device.
func TestMemoryComesBack(t *testing.T) {
	m := &hosted.Machine{Memory: 1000}
	model, err := m.LoadModel(&gpu.Network{Features: 2, MoL: &mol.Network{First: rerank.NewMatrix(2, 3)}})
	if err != nil || m.Used() != 24 {
		t.Fatalf("%d bytes, %v", m.Used(), err)
	}
	table, err := m.NewTable(model, 100)
	if err != nil || m.Used() != 824 {
		t.Fatalf("%d bytes, %v", m.Used(), err)
	}
	if _, err := m.NewTable(model, 100); err == nil {
		t.Error("more than there is")
	}
	if err := table.Free(); err != nil || m.Used() != 24 {
		t.Errorf("%d bytes, %v", m.Used(), err)
	}
	if err := model.Free(); err != nil || m.Used() != 0 {
		t.Errorf("%d bytes, %v", m.Used(), err)
	}
}
