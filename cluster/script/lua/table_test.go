package lua_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
)

// A table behaves as a map does, and Next visits each entry once, also while
// entries are set to nil.
func TestTable_IsAMap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		table, model := lua.NewShared(r.IntN(5)), make(map[any]float64)
		for range 400 {
			key, name := randomKey(r)
			if r.IntN(3) == 0 {
				table.Set(key, lua.Nil)
				delete(model, name)
			} else {
				v := float64(r.IntN(1000))
				table.Set(key, lua.Number(v))
				model[name] = v
			}
			if got, ok := table.Get(key).AsNumber(); ok != has(model, name) || got != model[name] {
				t.Fatalf("seed %d: key %v: got %v, %v, want %v", seed, name, got, ok, model[name])
			}
			if n := table.Len(); n > 0 && table.GetInt(n).IsNil() || !table.GetInt(n+1).IsNil() {
				t.Fatalf("seed %d: %d is not a border", seed, n)
			}
		}
		seen := make(map[any]bool)
		for k := lua.Nil; ; {
			var v lua.Value
			var ok bool
			if k, v, ok = table.Next(k); !ok {
				t.Fatalf("seed %d: Next does not know its own key", seed)
			}
			if k.IsNil() {
				break
			}
			name := plain(k)
			if got, _ := v.AsNumber(); seen[name] || got != model[name] {
				t.Fatalf("seed %d: %v: got %v (seen: %v), want %v", seed, name, got, seen[name], model[name])
			}
			seen[name] = true
			table.Set(k, lua.Nil)
		}
		if len(seen) != len(model) {
			t.Fatalf("seed %d: Next visited %d of %d", seed, len(seen), len(model))
		}
	}
}

func has(m map[any]float64, k any) bool { _, ok := m[k]; return ok }

func randomKey(r *rand.Rand) (lua.Value, any) {
	switch r.IntN(4) {
	case 0, 1:
		n := r.IntN(40) - 3
		return lua.Int(n), float64(n)
	case 2:
		f := float64(r.IntN(20)) / 4
		return lua.Number(f), f
	}
	s := string(rune('a' + r.IntN(26)))
	return lua.Const(s), s
}

func plain(v lua.Value) any {
	if s, ok := v.AsString(); ok {
		return s
	}
	f, _ := v.AsNumber()
	return f
}

func TestFormatNumber_PrintsAsC(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "-0", 1: "1", -5: "-5", 0.1: "0.1", 1e14: "1e+14", 99999999999999: "99999999999999",
		1e15: "1e+15", 1e100: "1e+100", 1.0 / 3: "0.33333333333333", 1e-5: "1e-05", 123456789012345678: "1.2345678901235e+17",
		math.Inf(1): "inf", math.Inf(-1): "-inf", 2.5: "2.5",
	} {
		if got := lua.FormatNumber(f); got != want {
			t.Errorf("%g: got %s, want %s", f, got, want)
		}
	}
}

func TestParseNumber_ReadsAsC(t *testing.T) {
	for s, want := range map[string]float64{
		"1": 1, " 12 ": 12, "-7": -7, "+7": 7, "1e2": 100, ".5": 0.5, "5.": 5, "0x10": 16, "-0x1F": -31, "0x.8": 0.5, "0x1p4": 16,
		"1e400": math.Inf(1), "inf": math.Inf(1), "-Infinity": math.Inf(-1), "\t1\n": 1, "1\x00junk": 1, "0": 0,
		"123456789012345678901": 123456789012345678901,
	} {
		if got, ok := lua.ParseNumber(s); !ok || got != want {
			t.Errorf("%q: got %v, %v, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", " ", "-", "+", "x", "1x", "1 2", "0x", "1e", "e5", ".", "1_000", "0x1_0", "--1", "infx", "0b1", "0o7", "１"} {
		if got, ok := lua.ParseNumber(s); ok {
			t.Errorf("%q: got %v, want none", s, got)
		}
	}
}

func TestScanNumber_TakesTheLongest(t *testing.T) {
	for s, want := range map[string]int{
		"12abc": 2, "1.5.5": 3, "1e5x": 3, "1e": 1, "1e+": 1, "0x1Fg": 4, "0xg": 1, "-": 0, "": 0, "-inf ": 4, "nan": 3, "infinity1": 8,
		".5": 2, ".": 0, "5.": 2, "-.": 0,
	} {
		if _, got := lua.ScanNumber(s); got != want {
			t.Errorf("%q: got %d, want %d", s, got, want)
		}
	}
}
