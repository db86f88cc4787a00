// Package experiment compares two versions of a route on live traffic: it interleaves their answers
// or divides requests between them, credits feedback, and says at any time who is better and how sure
// that is. It is pure: lists, seeds and counts come in, and lists and decisions go out. It knows no
// store, no clock and no configuration.
package experiment

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
)

// Arm is one of the two versions that an experiment compares.
type Arm uint8

// The arms of an experiment.
const (
	// Neither means that feedback on the item says nothing about the arms.
	Neither Arm = iota
	// Control is the version in service.
	Control
	// Candidate is the version that might replace it.
	Candidate
)

// String returns the name of the arm, as exported logs have it; "" for Neither.
func (a Arm) String() string {
	switch a {
	case Control:
		return "control"
	case Candidate:
		return "candidate"
	default:
		return ""
	}
}

// Placed is an item of an interleaved list, and the arm whose pick it was.
type Placed[ID comparable] struct {
	ID  ID
	Arm Arm
}

// Interleave mixes two ranked lists by team draft (Radlinski et al. 2008) and returns the first n
// items. In each round a coin says which arm picks first, and each arm picks the best item of its
// list that is not placed yet. Lists hold no item twice. An arm whose list is at its end picks no more.
//
// The coins depend on the seed and the round alone, so a longer list begins as a shorter one with the same
// seed. A client that asks for page two with the seed of page one gets the items after page one, if each
// arm's list is long enough for both pages.
func Interleave[ID comparable](control, candidate []ID, n int, seed uint64) []Placed[ID] {
	coins := rand.New(rand.NewPCG(seed, 0x7ea3))
	placed := make([]Placed[ID], 0, min(n, len(control)+len(candidate)))
	taken := make(map[ID]bool, cap(placed))
	pick := func(list *[]ID, arm Arm) {
		for len(*list) > 0 {
			id := (*list)[0]
			*list = (*list)[1:]
			if !taken[id] {
				taken[id] = true
				placed = append(placed, Placed[ID]{id, arm})
				return
			}
		}
	}
	for len(placed) < n && len(control)+len(candidate) > 0 {
		first, second := Control, Candidate
		if coins.Uint64()&1 == 1 {
			first, second = second, first
		}
		for _, arm := range []Arm{first, second} {
			switch {
			case len(placed) == n:
			case arm == Control:
				pick(&control, arm)
			default:
				pick(&candidate, arm)
			}
		}
	}
	return placed
}

// Key hashes names to a number, which every sidecar computes alike.
func Key(names ...string) uint64 {
	var length [8]byte
	h := sha256.New()
	for _, name := range names {
		binary.LittleEndian.PutUint64(length[:], uint64(len(name)))
		_, _ = h.Write(length[:]) // a hash does not fail
		_, _ = h.Write([]byte(name))
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// Kind says how an experiment compares its versions.
type Kind string

// The kinds of an experiment.
const (
	// Interleaving mixes the answers of both versions.
	Interleaving Kind = "interleave"
	// Dividing answers each request by one of the versions.
	Dividing Kind = "ab"
)

// Asked identifies a request for Assign.
type Asked struct {
	// Unit is who asks, or the query if that is unknown.
	Unit string
	// Query is the query with its filter: what the pages of one answer share.
	Query string
	// Session numbers the sessions, by the time of the request.
	Session int64
}

// Assignment says what an experiment does with a request.
type Assignment struct {
	// Takes reports whether the request takes part.
	Takes bool
	// Arm answers the request in an experiment that divides requests.
	Arm Arm
	// Seed is the seed of Interleave.
	Seed uint64
}

// Assign decides which share of the units takes part in an experiment. When the share grows, whoever
// took part still does.
//
// A unit gets another arm, and its queries other seeds, in every session. If a frequent query kept
// its seed, one arm would come first in it for good, and its sessions would not be independent of
// each other, as Test demands.
func Assign(experiment string, asked Asked, share float64) Assignment {
	a := Assignment{Takes: float64(Key(experiment, asked.Unit))*0x1p-64 < share, Arm: Control}
	if !a.Takes {
		return a
	}
	session := strconv.FormatInt(asked.Session, 10)
	if Key(experiment, asked.Unit, session)&1 == 1 {
		a.Arm = Candidate
	}
	a.Seed = Key(experiment, asked.Unit, session, asked.Query)
	return a
}
