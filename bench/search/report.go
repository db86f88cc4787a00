package main

import "github.com/likenessdb/likeness/sidecar/bench"

// report contains all measurements.
type report struct {
	Processor string         `json:"processor"`
	Cores     int            `json:"cores"`
	Go        string         `json:"go"`
	Qdrant    string         `json:"qdrant"`
	Kernel    string         `json:"kernel"`
	Load      [2]float64     `json:"load"` // load average of the machine over one minute, at the beginning and the end
	PlainGo   []bench.Result `json:"one_process_plain_go"`
	MadeUp    []bench.Result `json:"one_process"`
	Alone     []bench.Result `json:"over_qdrant"`
	Loaded    []loadedResult `json:"at_80_percent"`
	Tail      *tail          `json:"tail"` // of the case traced
}

// loadedResult is the result of one route at 80 % of Capacity, which is the rate of good
// answers with 16 callers.
type loadedResult struct {
	Case     string           `json:"case"`
	Capacity float64          `json:"capacity"`
	At       bench.LoadResult `json:"at"`
}
