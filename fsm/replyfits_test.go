package fsm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// removers are commands that remove the data that they return. create is the command
// that adds an element, remove is the command that removes one, and left is a read
// that returns the number of elements that are left. "%d" stands for the number of
// an element.
var removers = []struct{ create, remove, left string }{
	{"RPUSH", "LPOP k", "LLEN k"},
	{"RPUSH", "LMPOP 1 k LEFT COUNT 1", "LLEN k"},
	{"SADD", "SPOP k", "SCARD k"},
	{"ZADD", "ZPOPMIN k 1", "ZCARD k"},
	{"ZADD", "ZMPOP 1 k MIN", "ZCARD k"},
	{"SET", "GETDEL k%d", ""},
	{"SET", "GETSET k%d small", ""},
	{"SET", "SET k%d small GET", ""},
}

// likeRemovers are commands that take elements with the same functions as a command
// of removers, commands that only move the element that they return, and commands
// that return only whether they deleted something.
var likeRemovers = []string{
	"rpop", "blpop", "brpop", "blmpop", "zpopmax", "bzpopmin", "bzpopmax", "bzmpop",
	"lmove", "blmove", "rpoplpush", "brpoplpush",
	"smove", "rename", "renamenx", "delex", "delifeq",
}

// TestReplyFits_Commands checks that removers and likeRemovers contain all commands
// that, according to their rows, return data and delete it.
func TestReplyFits_Commands(t *testing.T) {
	known := make(map[string]bool)
	for _, r := range removers {
		name, _, _ := strings.Cut(r.remove, " ")
		known[strings.ToLower(name)] = true
	}
	for _, name := range likeRemovers {
		known[name] = true
	}
	removes := 0
	for _, cmd := range command.NewTable().Rows() {
		access := cmd.Access.Flags
		for _, spec := range cmd.Specs {
			access += " " + spec.Access.Flags
		}
		if !strings.Contains(access, "access delete") {
			continue
		}
		removes++
		if !known[cmd.Name] {
			t.Errorf("%s returns data and deletes it: add it to removers", cmd.Name)
		}
	}
	if removes < 15 {
		t.Errorf("only %d commands have the access \"access delete\"", removes)
	}
}

// TestReplyFits checks that no data is lost if the replies of a pipeline or of a
// transaction exceed the limit: for each element, the client gets the element, or
// the element is still there. A command after the limit is exceeded still gets its
// reply.
func TestReplyFits(t *testing.T) {
	const size, count = 7 << 20, 8 // 7 elements are more than the limit
	for _, r := range removers {
		for _, form := range []string{"pipeline", "transaction"} {
			if form == "transaction" && r.left != "" && r.create != "RPUSH" {
				continue // the limit does not depend on the type
			}
			t.Run(form+" "+r.remove, func(t *testing.T) {
				f := newFeed(t)
				f.raise(fsm.FeatureReplies)
				for i := range count {
					elem := strconv.Itoa(i) + strings.Repeat("x", size)
					switch r.create {
					case "SET":
						f.call("SET", fmt.Sprint("k", i), elem)
					case "ZADD":
						f.call("ZADD", "k", strconv.Itoa(i), elem)
					default:
						f.call(r.create, "k", elem)
					}
				}
				f.group.Reset(2, 1)
				var queued []fsm.Queued
				for i := range count {
					words := strings.Fields(strings.ReplaceAll(r.remove, "%d", strconv.Itoa(i)))
					if form == "pipeline" {
						f.add(words...)
						continue
					}
					args := make([][]byte, len(words))
					for j, w := range words {
						args[j] = []byte(w)
					}
					queued = append(queued, fsm.Queued{Cmd: f.m.Table().Find(args[0]), Args: args})
				}
				if queued != nil {
					f.group.Transaction(nil, queued)
				}
				f.add("EXISTS", "none")
				got := f.send()
				if !strings.HasSuffix(got, ":0\r\n") {
					t.Errorf("the last command got no reply: %.50q", got[max(len(got)-50, 0):])
				}
				returned := strings.Count(got, strings.Repeat("x", size))
				refused := strings.Count(got, "-"+fsm.ReplyTooLarge+"\r\n")
				if returned+refused != count || returned < 6 || refused == 0 {
					t.Fatalf("%d elements returned and %d refused, want %d together", returned, refused, count)
				}
				if left := f.remaining(r.left, count, size); left != refused {
					t.Errorf("%d elements were refused and %d are left", refused, left)
				}
			})
		}
	}
}

// remaining returns the number of elements of the given size that are left.
func (f *feed) remaining(read string, count, size int) (n int) {
	f.t.Helper()
	if read != "" {
		reply := f.do(read)
		if _, err := fmt.Sscanf(reply, ":%d\r\n", &n); err != nil {
			f.t.Fatalf("%s: %q: %v", read, reply, err)
		}
		return n
	}
	for i := range count {
		if f.do(fmt.Sprint("STRLEN k", i)) == fmt.Sprintf(":%d\r\n", size+1) { // the number precedes the x
			n++
		}
	}
	return n
}

// TestReplyFits_Speculated checks that the speculative execution of a group with a
// script refuses the same commands as the machines that apply the entry. In a
// transaction with a script, the replies of all commands are logged, so their limit
// is lower.
func TestReplyFits_Speculated(t *testing.T) {
	for _, test := range []struct {
		form     string
		returned int
	}{{"pipeline", 6}, {"transaction", 4}} {
		t.Run(test.form, func(t *testing.T) {
			s := newStage(t)
			s.index++
			start := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1", Features: fsm.MaxFeatures})
			if _, err := s.m.Apply(s.index, 1, start); err != nil {
				t.Fatal(err)
			}
			var commands []string
			for range 8 {
				s.group("EVAL|dup 7340032\nRPUSH l x|0")
				commands = append(commands, "LPOP|l")
			}
			s.commit()
			commands = append(commands, "EVAL|LLEN l|0")
			if test.form == "pipeline" {
				s.group(commands...)
			} else {
				s.transaction(nil, commands...)
			}
			got := s.commit()
			returned := strings.Count(got, strings.Repeat("x", 7340032))
			refused := strings.Count(got, fsm.ReplyTooLarge)
			if returned != test.returned || refused != 8-test.returned || !strings.HasSuffix(got, fmt.Sprintf(":%d ", refused)) {
				t.Errorf("%d elements were returned and %d refused, want %d returned; the end of the replies is %q",
					returned, refused, test.returned, got[max(len(got)-20, 0):])
			}
		})
	}
}
