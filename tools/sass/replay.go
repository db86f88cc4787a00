package main

import "maps"

// guess is what is not documented of a device: latencies, and how long an instruction keeps
// its part of a quarter of a multiprocessor busy, both in clocks.
type guess struct {
	latency, busy map[kind]int
}

// guesses returns the fastest device that is plausible and the slowest.
func guesses() (low, high guess) {
	low = guess{
		latency: map[kind]int{
			special: 10, tensor: 18, matrix: 22, shared: 18, shuffle: 18,
			memory: 35, convert: 6, integer: 6, multiply: 5, float: 4, other: 12,
		},
		busy: map[kind]int{
			special: 8, tensor: 5, matrix: 8, shared: 2, shuffle: 2,
			convert: 2, integer: 2, multiply: 2, float: 1,
		},
	}
	high = guess{latency: maps.Clone(low.latency), busy: maps.Clone(low.busy)}
	maps.Copy(high.latency, map[kind]int{special: 22, tensor: 33, matrix: 33, shared: 29, shuffle: 29})
	maps.Copy(high.busy, map[kind]int{tensor: 8, matrix: 16, shared: 4, shuffle: 4})
	return low, high
}

// warp is the state of one warp in a replay.
type warp struct {
	at    int // the next instruction
	ready int // the clock from which it may be issued
	clear [barriers]int
}

// replay returns the clocks in which warps that share a scheduler execute code, rounds times
// each. The scheduler issues an instruction a clock, of the warp that is ready first; a warp
// issues in order, waits as its control bits say, and for the part that it needs.
func replay(code []instruction, warps, rounds int, g guess) int {
	state := make([]warp, warps)
	free := map[kind]int{}
	clock, last := 0, 0
	for left := warps * rounds * len(code); left > 0; left-- {
		next, when := -1, 0
		for n := range state { // the one after the last comes first
			w := (last + 1 + n) % warps
			if state[w].at == rounds*len(code) {
				continue
			}
			if ready := state[w].start(code, free); next < 0 || ready < when {
				next, when = w, ready
			}
		}
		clock = max(clock, when)
		state[next].issue(code, clock, free, g)
		clock, last = clock+1, next
	}
	return clock
}

// start returns the first clock at which the warp's next instruction may be issued.
func (w *warp) start(code []instruction, free map[kind]int) int {
	i := code[w.at%len(code)]
	ready := max(w.ready, free[i.kind])
	for b := range barriers {
		if i.waits>>b&1 != 0 {
			ready = max(ready, w.clear[b])
		}
	}
	return ready
}

// issue executes the warp's next instruction at a clock.
func (w *warp) issue(code []instruction, clock int, free map[kind]int, g guess) {
	i := code[w.at%len(code)]
	done, read := clock+g.latency[i.kind], clock+6
	onChip := i.kind == matrix || i.kind == shared || i.kind == shuffle
	if onChip || i.kind == special {
		done += g.busy[i.kind]
	}
	if onChip || i.kind == memory {
		read = clock + 12
	}
	if busy := g.busy[i.kind]; busy > 0 {
		free[i.kind] = clock + busy
	}
	if i.sets != noBarrier {
		w.clear[i.sets] = max(w.clear[i.sets], done)
	}
	if i.reads != noBarrier {
		w.clear[i.reads] = max(w.clear[i.reads], read)
	}
	w.ready = clock + max(1, i.stall)
	w.at++
}
