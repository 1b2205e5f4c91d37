// Package record reads and writes the data of the sweeps of test/bench, so that
// test/bench/plots can draw the data without another measurement.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Header says how the data of a file was measured.
type Header struct {
	Command    string      `json:"command"`    // the command that repeats the measurements
	Conditions [][2]string `json:"conditions"` // pairs of a name and a value, such as the machine or the date
	// Preliminary is true if there were too few repetitions, or if they were
	// too short.
	Preliminary bool `json:"preliminary,omitempty"`
}

// Sweep contains the measurements along one axis.
type Sweep struct {
	Header
	Axis   string  `json:"axis"`
	Points []Point `json:"points"`
}

// Point contains the measurements at one position of an axis.
type Point struct {
	At      int64    `json:"at"`
	Missing string   `json:"missing,omitempty"` // why the point was not measured
	Series  []Series `json:"series,omitempty"`
}

// These are the systems of a Series or a Profile.
const (
	Redis    = "Redis"
	Leader   = "leader"
	Follower = "follower"
)

// These are the quantities of a Series. Rate and P99 follow the name of a load.
const (
	Rate     = " commands/s"
	P99      = " p99 ms"
	Loading  = "loading s"
	Empty    = "empty bytes"    // resident memory before the keys are loaded
	Resident = "resident bytes" // resident memory with the keys
)

// Series contains the samples of one quantity of one system, one sample for each
// repetition.
type Series struct {
	What    string    `json:"what"`
	System  string    `json:"system"`
	Samples []float64 `json:"samples"`
}

// Samples returns the samples of a quantity, or nil if it was not measured.
func (p *Point) Samples(what, system string) []float64 {
	for _, s := range p.Series {
		if s.What == what && s.System == system {
			return s.Samples
		}
	}
	return nil
}

// Figure contains the median, the smallest and the largest of several values.
type Figure struct{ Median, Low, High float64 }

// FigureOf returns the figure of samples. There must be at least one sample.
func FigureOf(samples []float64) Figure {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return Figure{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// RatioOf returns the ratio of the median of samples to that of base. Low and
// High are the smallest and the largest of this ratio and the ratios of the
// individual repetitions. In each repetition, the systems were measured
// directly after each other. RatioOf returns false if one of the systems was
// not measured, or if the numbers of samples differ.
func RatioOf(samples, base []float64) (Figure, bool) {
	if len(samples) == 0 || len(samples) != len(base) {
		return Figure{}, false
	}
	ratios := make([]float64, len(samples))
	for i := range samples {
		ratios[i] = samples[i] / base[i]
	}
	f := FigureOf(ratios)
	f.Median = FigureOf(samples).Median / FigureOf(base).Median
	f.Low, f.High = min(f.Low, f.Median), max(f.High, f.Median)
	return f, true
}

// Profiles contains profiles of processes.
type Profiles struct {
	Header
	Rows []Profile `json:"rows"`
}

// Profile contains the total that a process used under a load, and the shares of
// a profile of the process. The total does not come from the profile, so the sum
// of the shares may differ from it.
type Profile struct {
	Row    string  `json:"row"` // the load
	System string  `json:"system"`
	Count  int64   `json:"count"`          // commands or keys
	Total  float64 `json:"total"`          // seconds of processor time, or bytes of resident memory
	File   string  `json:"file,omitempty"` // name of the file with the profile, "" for none
	Shares []Share `json:"shares,omitempty"`
}

// Share is the part of a profile that has one cause. Value is in the unit of the
// profile: nanoseconds of sampled processor time, or bytes of live memory.
type Share struct {
	Cause string  `json:"cause"`
	Value float64 `json:"value"`
}

// Sum returns the sum of the shares.
func (p *Profile) Sum() float64 {
	sum := 0.0
	for _, s := range p.Shares {
		sum += s.Value
	}
	return sum
}

// Read reads a Sweep or a Profiles from a file.
func Read[T Sweep | Profiles](path string) (*T, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// Write writes a Sweep or a Profiles to a file. The file is replaced as a whole,
// so an interrupted run keeps the old data.
func Write[T Sweep | Profiles](path string, v *T) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(b, '\n'))
}

// WriteFile replaces a file as a whole, and makes its directory if there is none.
func WriteFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return errors.Join(err, os.RemoveAll(path+".new"))
	}
	return os.Rename(path+".new", path)
}
