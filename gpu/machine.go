package gpu

import (
	"errors"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// ErrLost: the machine can do nothing more; its context is gone. What a Machine
// returns with it ends the use of the device in this process.
var ErrLost = errors.New("device lost")

// Machine computes on one device. Every method, those of its models and tables
// too, is called from one goroutine that stays on one thread. An error that
// wraps ErrLost is final; one that wraps device.ErrMemory leaves all as it was.
type Machine interface {
	// Facts are asked once, first.
	Facts() (Facts, error)
	// ModelBytes and TableBytes are what LoadModel and NewTable will take. They need no device.
	ModelBytes(n *Network) int64
	TableBytes(n *Network, capacity int) int64
	// LoadModel puts weights where they are read from.
	LoadModel(n *Network) (Model, error)
	// NewTable makes room for some rows of a model.
	NewTable(m Model, capacity int) (Table, error)
	// Run scores; survivors[i] answers jobs[i]. All jobs of a call are of one table and
	// one Way, and all or none of them name rows.
	Run(jobs []Job) ([]Survivors, error)
	// Close frees everything.
	Close() error
}

// Model is a Network on a machine.
type Model interface {
	// Approximates reports whether its tables can be scored by Bounded and Approximate.
	Approximates() bool
	Free() error
}

// Table is feature rows on a machine.
type Table interface {
	// Write puts rows where the table has room, from row first on. The matrix is the
	// caller's again when it returns.
	Write(first int, rows rerank.Matrix) error
	// Patch puts row i at numbers[i], each below the capacity and named once.
	Patch(numbers []uint32, rows rerank.Matrix) error
	// CopyFrom copies the first rows of another table of the model.
	CopyFrom(from Table, rows int) error
	// Resize says how many rows there are, and which of them a scan without a bitmap
	// returns: the set bits of alive, or all where it is nil. It is called before rows
	// are first scored, and after each change of them.
	Resize(rows int, alive []uint32) error
	Free() error
}

// Facts of a device.
type Facts struct {
	Name   string `json:"name"`   // of the device
	Driver string `json:"driver"` // its version
	// Memory in all and Free of it, in bytes.
	Memory int64 `json:"memory_bytes"`
	Free   int64 `json:"free_bytes"`
	// Processors is the number of multiprocessors, Capability the architecture, as 9.0.
	Processors int    `json:"multiprocessors"`
	Capability string `json:"compute_capability"`
	// MaxBatch is the most jobs of one Run, MaxKeep the most rows that one keeps.
	MaxBatch int `json:"max_batch"`
	MaxKeep  int `json:"max_keep"`
}

// Network is what a machine needs to know of a similarity: one inner product of
// whole feature rows, or a MoL.
type Network struct {
	Features int
	// MoL is nil for one inner product.
	MoL *mol.Network
}

// Way is how rows are scored.
type Way int

// The ways.
const (
	// Bounded: an upper bound of φ, what Approximate makes of a row and what Job.Limits
	// allow it; not finite where that is not.
	Bounded Way = iota
	// Approximate: operands rounded to float16, sums and item gates in float32.
	Approximate
	// Exact: float32 as φ is defined, within the error that bound.Network.Exact states.
	Exact
)

// Job is one query's.
type Job struct {
	Table Table
	Query rerank.Operands
	Way   Way
	// Limits of the query, for Bounded.
	Limits kernels.Limits
	// Rows to score, nil for all of the table. A row is named once.
	Rows []uint32
	// Bitmap, where not nil, has a bit for every row of the table that is scored, row i
	// in bit i%32 of word i/32. It is not given with Rows.
	Bitmap []uint32
	// Keep is how many of the best rows are returned, 1 to Facts.MaxKeep.
	Keep int
}

// Survivors are the best rows of a job: by score descending, then by number; rows
// whose score is not finite come last.
type Survivors struct {
	Rows   []uint32
	Scores []float32
	// Next is the score of the best row that was not kept, −Inf where there is none or
	// it is not finite.
	Next float32
	// Scored counts the rows of the job, NotFinite those whose score is not finite.
	Scored, NotFinite int
}
