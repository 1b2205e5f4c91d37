package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func history(ops ...porcupine.Operation) []porcupine.Operation { return ops }

func at(client int, call, ret int64, in op, out outcome) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret}
}

// TestModel_Catches makes sure that the checkers can fail.
func TestModel_Catches(t *testing.T) {
	set := op{"set", "k", "a"}
	get := op{kind: "get", key: "k"}
	nx := op{"setnx", "k", "b"}
	ok := outcome{known: true}
	for what, tc := range map[string]struct {
		h    []porcupine.Operation
		want porcupine.CheckResult
	}{
		"read after write":            {history(at(1, 0, 1, set, ok), at(2, 2, 3, get, outcome{known: true, value: "a"})), porcupine.Ok},
		"stale read":                  {history(at(1, 0, 1, set, ok), at(2, 2, 3, get, outcome{known: true, null: true})), porcupine.Illegal},
		"lost write":                  {history(at(1, 0, 1, set, ok), at(2, 2, 3, nx, outcome{known: true, n: 1})), porcupine.Illegal},
		"granted twice":               {history(at(1, 0, 1, op{"setnx", "k", "a"}, outcome{known: true, n: 1}), at(2, 0, 1, nx, outcome{known: true, n: 1})), porcupine.Illegal},
		"unknown write seen later":    {history(at(1, 0, 100, set, outcome{}), at(2, 2, 3, get, outcome{known: true, null: true}), at(2, 4, 5, get, outcome{known: true, value: "a"})), porcupine.Ok},
		"unknown write seen and gone": {history(at(1, 0, 100, set, outcome{}), at(2, 2, 3, get, outcome{known: true, value: "a"}), at(2, 4, 5, get, outcome{known: true, null: true})), porcupine.Illegal},
		"release of another's lock":   {history(at(1, 0, 1, set, ok), at(2, 2, 3, op{"cad", "k", "b"}, outcome{known: true, n: 1})), porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(register, tc.h, 10*time.Second); got != tc.want {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	s := time.Second
	for what, tc := range map[string]struct {
		holds []hold
		want  int
	}{
		"one after the other":   {[]hold{{lock: "l", called: 1 * s, granted: 2 * s, released: 3 * s, ttl: 10 * s}, {lock: "l", called: 1 * s, granted: 4 * s, ttl: 10 * s}}, 0},
		"after the TTL":         {[]hold{{lock: "l", called: 1 * s, granted: 2 * s, ttl: 3 * s}, {lock: "l", called: 2 * s, granted: 4 * s, ttl: 10 * s}}, 0},
		"before the TTL":        {[]hold{{lock: "l", called: 1 * s, granted: 2 * s, ttl: 3 * s}, {lock: "l", called: 2 * s, granted: 3900 * time.Millisecond, ttl: 10 * s}}, 1},
		"two locks":             {[]hold{{lock: "l", called: 1 * s, granted: 2 * s, ttl: 3 * s}, {lock: "m", called: 1 * s, granted: 2 * s, ttl: 3 * s}}, 0},
		"renewed":               {[]hold{{lock: "l", called: 1 * s, granted: 2 * s, ttl: 3 * s, renewed: 3 * s}, {lock: "l", called: 2 * s, granted: 5 * s, ttl: 10 * s}}, 1},
		"long one with a third": {[]hold{{lock: "l", called: 0, granted: 1 * s, ttl: 9 * s}, {lock: "l", called: 2 * s, granted: 3 * s, ttl: 2 * s}, {lock: "l", called: 5 * s, granted: 6 * s, ttl: 2 * s}}, 2},
	} {
		if got := overlaps(tc.holds); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", what, got, tc.want)
		}
	}
}
