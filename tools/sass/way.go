package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// block is a run of instructions, begin to end-1, that is entered at its first only.
type block struct {
	begin, end int
	next       []int // the blocks that may follow
}

var target = regexp.MustCompile("`\\((\\.L_\\S+)\\)")

// jump returns the label to which an instruction jumps, and whether the next instruction
// may follow too. Branches of warps whose lanes have parted (BRA.DIV) are not taken here.
func (i instruction) jump() (label string, falls bool) {
	name := i.name()
	if !strings.HasPrefix(name, "BRA") || strings.Contains(name, "DIV") {
		return "", name != "EXIT" || strings.HasPrefix(i.text, "@")
	}
	m := target.FindStringSubmatch(i.text)
	if m == nil {
		return "", false
	}
	operands := strings.Fields(target.ReplaceAllString(i.text, ""))
	return m[1], len(operands) > 1 // a predicate, before the name or after it
}

// blocks cuts a kernel where something jumps and where something is jumped to.
func (k *kernel) blocks() ([]block, error) {
	cuts := map[int]bool{0: true}
	for n, i := range k.code {
		label, falls := i.jump()
		if label != "" {
			at, ok := k.labels[label]
			if !ok {
				return nil, fmt.Errorf("%s: no label %s", k.name, label)
			}
			cuts[at], cuts[n+1] = true, true
		} else if !falls {
			cuts[n+1] = true
		}
	}
	var begins []int
	for at := range cuts {
		if at < len(k.code) {
			begins = append(begins, at)
		}
	}
	sort.Ints(begins)
	out := make([]block, len(begins))
	for n, begin := range begins {
		b := block{begin: begin, end: len(k.code)}
		if n+1 < len(begins) {
			b.end = begins[n+1]
		}
		label, falls := k.code[b.end-1].jump()
		if label != "" {
			if to, ok := slices.BinarySearch(begins, k.labels[label]); ok {
				b.next = append(b.next, to)
			}
		}
		if falls && n+1 < len(begins) {
			b.next = append(b.next, n+1)
		}
		out[n] = b
	}
	return out, nil
}

// loop is the set of blocks from which control comes back to the head.
type loop struct {
	head int
	body map[int]bool
}

// loops finds the natural loops, the smallest first, and the edges that close them.
func loops(blocks []block) (all []loop, closing map[[2]int]bool) {
	closing = map[[2]int]bool{}
	before := make([][]int, len(blocks))
	state := make([]int, len(blocks)) // 0 not seen, 1 on the way from the entry, 2 done
	var visit func(n int)
	visit = func(n int) {
		state[n] = 1
		for _, to := range blocks[n].next {
			before[to] = append(before[to], n)
			switch state[to] {
			case 0:
				visit(to)
			case 1:
				closing[[2]int{n, to}] = true
			}
		}
		state[n] = 2
	}
	visit(0)
	heads := map[int]map[int]bool{}
	for edge := range closing {
		body := heads[edge[1]]
		if body == nil {
			body = map[int]bool{edge[1]: true}
			heads[edge[1]] = body
		}
		for open := []int{edge[0]}; len(open) > 0; {
			n := open[len(open)-1]
			open = open[:len(open)-1]
			if !body[n] {
				body[n] = true
				open = append(open, before[n]...)
			}
		}
	}
	for head, body := range heads {
		all = append(all, loop{head, body})
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return len(a.body) < len(b.body) || len(a.body) == len(b.body) && a.head < b.head
	})
	return all, closing
}

// way returns the instructions of one pass of a MoL kernel's loop over tiles: 32 items and
// one query, or 16 items and two. The loop is the smallest with products on tensor cores and
// exponentials. Where the loop branches it goes the longest way, which is that of all gates
// and of bounds. The loop of the hidden layer inside evaluates a tangent a hidden unit in
// each lane, so that says how often it runs.
func (k *kernel) way(hidden int) ([]instruction, error) {
	blocks, err := k.blocks()
	if err != nil {
		return nil, err
	}
	all, closing := loops(blocks)
	count := func(l loop, name string) (n int) {
		for b := range l.body {
			for _, i := range k.code[blocks[b].begin:blocks[b].end] {
				if strings.HasPrefix(i.name(), name) {
					n++
				}
			}
		}
		return n
	}
	at := slices.IndexFunc(all, func(l loop) bool { return count(l, "HMMA") > 0 && count(l, "MUFU.EX2") > 0 })
	if at < 0 {
		return nil, fmt.Errorf("%s has no loop with tensor products and exponentials", k.name)
	}
	tile := all[at]
	times := map[int]int{}
	for _, inner := range all[:at] {
		if tangents := count(inner, "MUFU.TANH"); tile.body[inner.head] && tangents > 0 {
			for b := range inner.body {
				times[b] = hidden / tangents
			}
		}
	}
	_, path := longest(blocks, tile, closing, times)
	if path == nil {
		return nil, errors.New(k.name + ": no way through the loop")
	}
	var out []instruction
	for _, b := range path {
		for range max(1, times[b]) {
			out = append(out, k.code[blocks[b].begin:blocks[b].end]...)
		}
	}
	return out, nil
}

// longest returns the way from the loop's head back to it that has the most instructions,
// as block numbers. Blocks that are listed in times count that often.
func longest(blocks []block, l loop, closing map[[2]int]bool, times map[int]int) (length int, path []int) {
	type found struct {
		length int
		path   []int
	}
	known := map[int]found{}
	var from func(n int) found
	from = func(n int) found {
		if f, ok := known[n]; ok {
			return f
		}
		var best found
		for _, to := range blocks[n].next {
			if to == l.head && best.path == nil {
				best = found{0, []int{}}
			} else if l.body[to] && !closing[[2]int{n, to}] {
				if f := from(to); f.path != nil && f.length > best.length {
					best = f
				}
			}
		}
		if best.path != nil {
			own := (blocks[n].end - blocks[n].begin) * max(1, times[n])
			best = found{best.length + own, append([]int{n}, best.path...)}
		}
		known[n] = best
		return best
	}
	f := from(l.head)
	return f.length, f.path
}
