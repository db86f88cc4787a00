package gpu

import (
	"errors"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// ErrLost: the machine cannot be used any more, because its context is gone. After a
// Machine has returned it, the process cannot use the device again.
var ErrLost = errors.New("device lost")

// ErrRefused: the driver refused to launch a kernel, for example because the device has too
// few registers or too little shared memory for it. The machine works on.
var ErrRefused = errors.New("launch refused")

// Machine computes on one device. All its methods, and the methods of its models and
// tables, must be called from one goroutine that stays on one thread. An error that wraps
// ErrLost is final. One that wraps device.ErrMemory or ErrRefused leaves everything
// unchanged.
type Machine interface {
	// Facts is called once, before all other methods.
	Facts() (Facts, error)
	// ModelBytes and TableBytes return how much memory LoadModel and NewTable will
	// allocate. They do not use the device.
	ModelBytes(n *Network) int64
	TableBytes(n *Network, capacity int) int64
	// LoadModel copies a model's weights to the device.
	LoadModel(n *Network) (Model, error)
	// NewTable allocates a table of a model with room for capacity rows.
	NewTable(m Model, capacity int) (Table, error)
	// Run scores rows. survivors[i] answers jobs[i]. All jobs of a call must have the same
	// table and the same Way, and either all or none of them name rows.
	Run(jobs []Job) ([]Survivors, error)
	// Close frees everything.
	Close() error
}

// Model is a Network on a machine.
type Model interface {
	// Approximates reports whether the model's tables can be scored by Bounded and Approximate.
	Approximates() bool
	Free() error
}

// Table is feature rows on a machine.
type Table interface {
	// Write stores rows from row number first on. The caller may reuse the matrix when
	// Write returns.
	Write(first int, rows rerank.Matrix) error
	// Patch stores row i at row number numbers[i]. Numbers must be unique and below the
	// capacity.
	Patch(numbers []uint32, rows rerank.Matrix) error
	// CopyFrom copies the first rows of another table of the same model.
	CopyFrom(from Table, rows int) error
	// Resize sets the number of rows and which of them are alive (the set bits of alive, or
	// all if it is nil). A scan without a bitmap returns only rows that are alive. Resize
	// must be called before the first scoring and after each change of rows.
	Resize(rows int, alive []uint32) error
	Free() error
}

// Facts describes a device.
type Facts struct {
	Name   string `json:"name"`   // name of the device
	Driver string `json:"driver"` // version of the driver
	// Memory is the total, Free the free memory, in bytes.
	Memory int64 `json:"memory_bytes"`
	Free   int64 `json:"free_bytes"`
	// Processors is the number of multiprocessors. Capability is the compute capability,
	// such as 9.0.
	Processors int    `json:"multiprocessors"`
	Capability string `json:"compute_capability"`
	// MaxBatch is the most jobs of one Run, MaxKeep the most rows that one job keeps.
	MaxBatch int `json:"max_batch"`
	MaxKeep  int `json:"max_keep"`
	// Kernels names the code that was loaded: the architecture of a cubin, such as sm_90, or PTX with the reason.
	// LoadSeconds is how long the driver took for that, and CompilerLog what its compiler said:
	// nothing of a cubin, or if it had the PTX compiled already.
	Kernels     string  `json:"kernels,omitempty"`
	LoadSeconds float64 `json:"load_seconds,omitempty"`
	CompilerLog string  `json:"compiler_log,omitempty"`
}

// Network describes a similarity to a machine: a MoL, or one inner product of whole feature
// rows.
type Network struct {
	Features int
	// MoL is nil for one inner product.
	MoL *mol.Network
}

// InnerProduct reports whether φ is one inner product with the whole feature row.
func (n *Network) InnerProduct() bool { return n.MoL == nil || n.MoL.Fixed }

// Way says how rows are scored.
type Way int

// The ways.
const (
	// Bounded computes an upper bound of φ: the score of Approximate, increased by the error
	// that Job.Limits allow. It is not finite if that score is not.
	Bounded Way = iota
	// Approximate rounds operands to float16. Sums and item gates are float32.
	Approximate
	// Exact computes φ in float32, with the error that bound.Network.Exact states.
	Exact
)

func (w Way) String() string {
	switch w {
	case Bounded:
		return "the upper bound"
	case Approximate:
		return "the approximate score"
	case Exact:
	}
	return "the score"
}

// Job is the work of one query in a Run.
type Job struct {
	Table Table
	Query rerank.Operands
	Way   Way
	// Limits are the query's limits, for Bounded.
	Limits kernels.Limits
	// Rows lists the rows to score, each once. nil means the whole table.
	Rows []uint32
	// Bitmap, if not nil, selects the rows to score: row i is bit i%32 of word i/32. It is
	// not combined with Rows.
	Bitmap []uint32
	// Keep is how many of the best rows to return, from 1 to Facts.MaxKeep.
	Keep int
}
