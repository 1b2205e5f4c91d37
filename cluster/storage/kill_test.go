package storage_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// killedEnv is the environment variable that makes the test binary write
// without end, so that TestKill can kill it. Its value is "kind dir".
const killedEnv = "HOLDFAST_STORAGE_VICTIM"

func TestMain(m *testing.M) {
	if v := os.Getenv(killedEnv); v != "" {
		kind, dir, _ := strings.Cut(v, " ")
		fmt.Println("error:", victim(kind, dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim writes without end, and reports each write that has become durable.
func victim(kind, dir string) error {
	s, err := storage.Open(storage.NoteEvery(storage.Config{
		Dir: dir, NodeID: "n1", LogKind: kind, SegmentBytes: 16 << 10,
	}, 3*time.Millisecond))
	if err != nil {
		return err
	}
	next, err := s.Log().LastIndex()
	if err != nil {
		return err
	}
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), 1<<40); err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport("n1")
	for next++; ; {
		batch := entries(next, next+rand.Uint64N(6), rand.IntN(900))
		if err := s.Log().StoreLogs(batch); err != nil {
			return err
		}
		next += uint64(len(batch))
		fmt.Println("log", next-1)
		switch rand.IntN(20) {
		case 0: // a conflict
			next -= min(next-1, 3)
			fmt.Println("cut", next-1)
			if err := s.Log().DeleteRange(next, next+10); err != nil {
				return err
			}
		case 1: // a snapshot
			at := next - 1
			sink, err := s.Snapshots().Create(1, at, 1, raft.Configuration{}, 1, trans)
			if err != nil {
				return err
			}
			if err := sink.Close(); err != nil {
				return err
			}
			fmt.Println("snap", at)
			if err := s.Log().DeleteRange(1, at-min(at, 10)); err != nil {
				return err
			}
		case 2, 3, 4:
			if err := s.Stable().SetUint64([]byte("LastVoteTerm"), next); err != nil {
				return err
			}
			if err := s.Stable().Set([]byte("LastVoteCand"), fmt.Appendf(nil, "n%d", next)); err != nil {
				return err
			}
			fmt.Println("vote", next)
		}
	}
}

// TestKill kills a writing process again and again. No crash may be taken for
// damage, and nothing that the process reported as durable may be missing.
func TestKill(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		dir := t.TempDir()
		for range 12 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killedEnv+"="+kind+" "+dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			reported := map[string]uint64{}
			lines, enough := 0, 1+rand.IntN(150)
			for sc := bufio.NewScanner(out); sc.Scan(); lines++ {
				what, num, _ := strings.Cut(sc.Text(), " ")
				n, err := strconv.ParseUint(num, 10, 64)
				if err != nil {
					t.Fatalf("the process printed a line without a number: %s", sc.Text())
				}
				reported[what] = n
				if what == "cut" {
					reported["log"] = n
				}
				if lines == enough {
					// Reports that arrive before the signal takes effect count,
					// too.
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("the process ended by itself")
			}

			s := open(t, config(t, dir, kind))
			first, _ := s.Log().FirstIndex()
			last, _ := s.Log().LastIndex()
			if last < reported["log"] {
				t.Fatalf("the log ends at %d, but the process reported %d as durable", last, reported["log"])
			}
			for i := first; i <= last; i++ {
				var l raft.Log
				if err := s.Log().GetLog(i, &l); err != nil {
					t.Fatalf("GetLog(%d): %v", i, err)
				}
				if err := sameLog(&l, entry(i, len(l.Data))); err != nil {
					t.Fatal(err)
				}
			}
			metas, err := s.Snapshots().List()
			if err != nil || reported["snap"] > 0 && (len(metas) == 0 || metas[0].Index < reported["snap"]) {
				t.Fatalf("snapshots %v, %v, but the process reported one at %d as durable", metas, err, reported["snap"])
			}
			if reported["vote"] > 0 {
				term, err := s.Stable().GetUint64([]byte("LastVoteTerm"))
				if err != nil || term < reported["vote"] {
					t.Fatalf("vote in term %d, %v, but the process reported one in term %d as durable", term, err, reported["vote"])
				}
				wantVote(t, s.Stable(), term, fmt.Sprintf("n%d", term))
			}
			closeStores(t, s)
		}
	})
}
