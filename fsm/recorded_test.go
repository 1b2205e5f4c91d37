package fsm_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// record makes TestRecorded write the log of the highest feature version.
var record = flag.Bool("record", false, "record the log of the highest feature version in testdata/recorded")

// recordedFile returns the name of a file with a recorded log. The parameter
// features is the highest feature version of the program that recorded the log.
func recordedFile(features int) string {
	return filepath.Join("testdata", "recorded", fmt.Sprintf("features-%d.gz", features))
}

// recordedHistories is the number of histories in a recorded log. recordedSteps
// is the number of steps of each history.
const recordedHistories, recordedSteps = 20, 120

// recordedEntry is an entry of a recorded log, and the hash of the machine
// after the entry. An entry with index 1 begins a new history.
type recordedEntry struct {
	index, term uint64
	entry       []byte
	hash        uint64
}

func appendRecorded(b []byte, e recordedEntry) []byte {
	b = binary.AppendUvarint(b, e.index)
	b = binary.AppendUvarint(b, e.term)
	b = binary.AppendUvarint(b, uint64(len(e.entry)))
	return binary.LittleEndian.AppendUint64(append(b, e.entry...), e.hash)
}

func readRecorded(r *bufio.Reader) (e recordedEntry, err error) {
	if e.index, err = binary.ReadUvarint(r); err != nil {
		return e, err
	}
	term, err1 := binary.ReadUvarint(r)
	size, err2 := binary.ReadUvarint(r)
	e.term, e.entry = term, make([]byte, size)
	_, err3 := io.ReadFull(r, e.entry)
	var hash [8]byte
	_, err4 := io.ReadFull(r, hash[:])
	e.hash = binary.LittleEndian.Uint64(hash[:])
	return e, errors.Join(err1, err2, err3, err4)
}

// TestRecorded replays recorded logs, one for each feature version from 3 on, and
// compares the hash of the machine after every entry. A difference means that the
// members of a cluster diverge while the cluster is upgraded from the program that
// has recorded the log. The new meaning of the entry then needs a feature version
// of its own.
//
// The file of a feature version is recorded once, before the first program that
// knows the version is released. It is never recorded again. This command
// records it:
//
//	go test ./fsm -run TestRecorded -record
func TestRecorded(t *testing.T) {
	t.Parallel()
	if *record {
		recordLog(t)
	}
	for features := 3; features <= fsm.MaxFeatures; features++ {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			t.Parallel()
			packed, err := os.ReadFile(recordedFile(features))
			if err != nil {
				t.Fatal(err)
			}
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(z)
			var m *fsm.Machine
			entries := 0
			for ; ; entries++ {
				e, err := readRecorded(r)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if m == nil || e.index <= m.Applied() {
					m = fsm.New(command.NewTable())
				}
				if _, err := m.Apply(e.index, e.term, bytes.Clone(e.entry)); err != nil {
					t.Fatalf("entry %d of the log: %v\n%s", entries, err, describeEntry(e.entry))
				}
				if _, hash := m.Hash(); hash != e.hash {
					t.Fatalf("entry %d of the log: the hash is not the recorded one, at feature version %d:\n%s",
						entries, m.Features(), describeEntry(e.entry))
				}
			}
			if entries < 1000 {
				t.Errorf("%d entries are too few to test anything", entries)
			}
		})
	}
}

func recordLog(t *testing.T) {
	name := recordedFile(fsm.MaxFeatures)
	if _, err := os.Stat(name); err == nil {
		t.Fatalf("%s exists and must not change once a program that knows the version is released", name)
	}
	var log []byte
	for seed := range uint64(recordedHistories) {
		w := newRecordedWorld(t, rand.New(rand.NewPCG(seed, 8)), &log)
		for range recordedSteps {
			w.step()
		}
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.Write(log)
	if err := errors.Join(err, z.Close(), os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, packed.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes", name, packed.Len())
}
