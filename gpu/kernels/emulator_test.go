package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// emulator is the program that runs a launch on the CPU; "" without a compiler.
var emulator string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "likeness-kernels")
	if err == nil {
		emulator, err = build(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func build(dir string) (string, error) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		return "", nil //nolint:nilerr // then the tests are skipped
	}
	program := filepath.Join(dir, "run")
	out, err := exec.Command(compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wno-unknown-pragmas", "-Werror",
		"-o", program, "emulator/run.cpp", "emulator/emulator.cpp").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the emulator: %w\n%s", err, out)
	}
	return program, nil
}

func needsEmulator(t *testing.T) {
	t.Helper()
	if emulator == "" {
		t.Skip("g++ is not installed: the kernels were not run")
	}
}

// array is memory of the device: it has the bits of v before a launch and after it.
type array interface {
	load() []byte
	store(b []byte)
}

type words[T uint16 | uint32 | uint64 | float32 | kernels.TopKStats] []T

func (w words[T]) load() []byte {
	var b bytes.Buffer
	must(binary.Write(&b, binary.LittleEndian, []T(w)))
	return b.Bytes()
}

func (w words[T]) store(b []byte) {
	must(binary.Read(bytes.NewReader(b), binary.LittleEndian, []T(w)))
}

// addresses is an array of the addresses of bitmaps; one of none is 0.
type addresses []words[uint32]

func (a addresses) load() []byte   { return nil }
func (a addresses) store(_ []byte) {}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// memory maps a launch's addresses to arrays: the n-th array has address n.
type memory struct{ arrays []array }

// put returns the address of an array; of nil, 0.
func (m *memory) put(a array) uint64 {
	m.arrays = append(m.arrays, a)
	return addressBase + uint64(len(m.arrays)-1)
}

// addressBase is above all numbers that kernels take.
const addressBase = 1 << 40

// how says in what order the emulator runs warps, and which barrier it leaves out: 0,
// none; -1, the waits for copies.
type how struct {
	reverse bool
	skip    int
}

// errEmulator: the emulator ended a kernel.
var errEmulator = errors.New("emulator")

// run launches a kernel and returns the number of barriers that it reached.
func (m *memory) run(l kernels.Launch, a kernels.Arguments, h how) (int, error) {
	var in bytes.Buffer
	number := func(v ...uint64) { must(binary.Write(&in, binary.LittleEndian, v)) }
	number(uint64(len(l.Name)))
	in.WriteString(l.Name)
	reverse := uint64(0)
	if h.reverse {
		reverse = 1
	}
	list := a.List()
	number(uint64(l.GridX), uint64(l.GridY), uint64(l.Block), uint64(l.Shared), reverse, uint64(int64(h.skip)), uint64(len(list)))
	var written []array
	for _, v := range list {
		if v < addressBase {
			number(0, v)
			continue
		}
		array := m.arrays[v-addressBase]
		if list, ok := array.(addresses); ok {
			number(2, uint64(len(list)))
			for _, one := range list {
				number(uint64(4 * len(one)))
				in.Write(one.load())
			}
			continue
		}
		b := array.load()
		number(1, uint64(len(b)))
		in.Write(b)
		written = append(written, array)
	}
	var out, message bytes.Buffer
	cmd := exec.Command(emulator)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &message
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s: %s (%w)", errEmulator, l.Name, strings.TrimSpace(message.String()), err)
	}
	barriers := binary.LittleEndian.Uint64(out.Next(8))
	for _, array := range written {
		array.store(out.Next(len(array.load())))
	}
	return int(barriers), nil
}

// launch is run that must succeed, in both orders of warps, with one outcome.
func (m *memory) launch(t *testing.T, l kernels.Launch, a kernels.Arguments) {
	t.Helper()
	needsEmulator(t)
	before := m.contents()
	if _, err := m.run(l, a, how{}); err != nil {
		t.Fatal(err)
	}
	after := m.contents()
	m.restore(before)
	if _, err := m.run(l, a, how{reverse: true}); err != nil {
		t.Fatal(err)
	}
	if l.Name == "top_k" { // in no order
		return
	}
	for i, b := range m.contents() {
		if !bytes.Equal(b, after[i]) {
			t.Fatalf("%s: array %d depends on the order of the warps", l.Name, i)
		}
	}
}

func (m *memory) contents() [][]byte {
	all := make([][]byte, len(m.arrays))
	for i, a := range m.arrays {
		all[i] = a.load()
	}
	return all
}

func (m *memory) restore(all [][]byte) {
	for i, b := range all {
		m.arrays[i].store(b)
	}
}
