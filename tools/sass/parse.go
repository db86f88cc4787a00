package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// kernel is the machine code of one kernel, in the order of its addresses.
type kernel struct {
	name   string
	code   []instruction
	labels map[string]int // the instruction that follows a label
}

// instruction is one machine instruction with what the assembler has told the scheduler.
type instruction struct {
	address int
	text    string // without its semicolon, with its predicate: "@P0 BRA `(.L_x_7)"
	kind    kind

	stall int   // clocks until this warp may issue its next instruction
	sets  int   // the barrier that the result clears, noBarrier for none
	reads int   // the barrier that clears when the operands are read, noBarrier for none
	waits uint8 // a bit for each of six barriers that must be clear before
}

const (
	barriers  = 6
	noBarrier = 7
)

// kind says which part of a multiprocessor carries an instruction out.
type kind int

const (
	other kind = iota
	special
	tensor
	matrix // loads of matrices from shared memory
	shared
	shuffle
	memory
	convert
	integer
	multiply
	float
)

// kinds gives the kind of an instruction by the first part of its name.
var kinds = map[string]kind{
	"MUFU": special, "HMMA": tensor, "LDSM": matrix, "LDS": shared, "STS": shared, "SHFL": shuffle,
	"LDG": memory, "LD": memory, "STG": memory, "ST": memory, "LDGSTS": memory, "LDC": memory, "LDL": memory, "STL": memory,
	"F2FP": convert, "IMAD": multiply, "FFMA": float, "FADD": float, "FMUL": float,
	"FMNMX": integer, "LOP3": integer, "IADD3": integer, "LEA": integer, "ISETP": integer, "FSEL": integer, "FSETP": integer,
	"SHF": integer, "PRMT": integer, "MOV": integer, "SEL": integer, "VIADD": integer, "PLOP3": integer, "IMNMX": integer,
	"R2P": integer, "P2R": integer, "I2FP": integer, "BMSK": integer, "SGXT": integer,
}

var (
	section   = regexp.MustCompile(`^\.text\.(\S+):`)
	labelled  = regexp.MustCompile(`^(\.L_\S+):`)
	encoded   = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x[0-9a-f]{16} \*/`)
	control   = regexp.MustCompile(`^\s*/\* 0x([0-9a-f]{16}) \*/`)
	predicate = regexp.MustCompile(`^@!?U?P\w+\s+`)
)

// name returns the instruction's name with its modifiers: "MUFU.EX2".
func (i instruction) name() string {
	name, _, _ := strings.Cut(predicate.ReplaceAllString(i.text, ""), " ")
	return name
}

// parse reads the kernels that `nvdisasm -hex` prints. An instruction takes two lines there:
// the second holds the upper half of its bits, where the scheduler's are.
func parse(r io.Reader) (map[string]*kernel, error) {
	out := map[string]*kernel{}
	var k *kernel
	var half *instruction // whose second line comes next
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := section.FindStringSubmatch(line); m != nil {
			k = &kernel{name: m[1], labels: map[string]int{}}
			out[k.name] = k
			continue
		}
		switch m := encoded.FindStringSubmatch(line); {
		case k == nil:
		case m != nil:
			address, err := strconv.ParseInt(m[1], 16, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: address %s: %w", k.name, m[1], err)
			}
			half = &instruction{address: int(address), text: m[2]}
			first, _, _ := strings.Cut(half.name(), ".")
			half.kind = kinds[first]
		case half != nil && control.MatchString(line):
			bits, err := strconv.ParseUint(control.FindStringSubmatch(line)[1], 16, 64)
			if err != nil {
				return nil, fmt.Errorf("%s at %#x: %w", k.name, half.address, err)
			}
			half.stall, half.sets, half.reads, half.waits = int(bits>>41&15), int(bits>>46&7), int(bits>>49&7), uint8(bits>>52&63)
			k.code = append(k.code, *half)
			half = nil
		case strings.HasPrefix(line, "//--"): // another section
			k = nil
		default:
			if m := labelled.FindStringSubmatch(line); m != nil {
				k.labels[m[1]] = len(k.code)
			}
		}
	}
	return out, lines.Err()
}
