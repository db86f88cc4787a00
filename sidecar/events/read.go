package events

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/likenessdb/likeness/internal/record"
)

// Visitor holds the functions that Read calls for each event. A nil function skips its kind of
// event.
type Visitor struct {
	// Since leaves out the files that were complete before it; the zero time leaves out none. An event
	// that happened at Since or later, as the sidecar's clock had it, is in another file.
	Since      time.Time
	Impression func(*Impression) error
	Feedback   func(*Feedback) error
}

// Read passes the events in the files of a log to a visitor, in the order in which they were
// written. A sidecar may be writing to the log meanwhile. damaged counts the places with bytes that
// cannot be read. Read returns the visitor's error, or the error of a file.
func Read(dir string, v Visitor) (damaged int, err error) {
	segments, err := listSegments(dir)
	if err != nil {
		return 0, err
	}
	for i, s := range segments {
		if i+1 < len(segments) && !segments[i+1].begun.IsZero() && segments[i+1].begun.Before(v.Since) {
			continue
		}
		b, err := os.ReadFile(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the sidecar has deleted it
		}
		if err != nil {
			return damaged, err
		}
		c := record.ReadAll(b, 0)
		damaged += len(c.Damage)
		for _, r := range c.Records {
			err := v.visit(r.Record)
			if errors.Is(err, errRecord) {
				damaged++
				err = nil
			}
			if err != nil {
				return damaged, fmt.Errorf("%s at byte %d: %w", s.path, r.At, err)
			}
		}
	}
	return damaged, nil
}

// visit decodes a record. It returns errRecord, or the visitor's error.
func (v Visitor) visit(r record.Record) error {
	switch {
	case r.Number == recordImpression && v.Impression != nil:
		m, err := decodeImpression(r.Body)
		if err != nil {
			return err
		}
		return v.Impression(m)
	case r.Number == recordFeedback && v.Feedback != nil:
		f, err := decodeFeedback(r.Body)
		if err != nil {
			return err
		}
		return v.Feedback(f)
	}
	return nil
}
