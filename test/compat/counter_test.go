package compat

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestCounters(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("INCR k", "INCR k", "DECR k", "DECR k", "DECR k", "INCRBY k 5", "DECRBY k 7", "GET k", "INCR", "INCR a b",
			"DECR", "INCRBY k", "DECRBY k", "INCRBYFLOAT k")
		for _, value := range []string{
			"0", "-0", "+1", "01", "-01", `""`, `" 1"`, `"1 "`, "1.0", "1e3", "0x10", "x", "-", "9223372036854775807",
			"-9223372036854775808",
			"9223372036854775808", "-9223372036854775809", "99999999999999999999", "100000000000000000000000",
			`"1\x00"`,
		} {
			for _, line := range []string{"INCR k", "DECR k", "INCRBY k 1", "INCRBY k -1", "DECRBY k 1", "INCRBY k 0"} {
				p.DoPipelined("SET k "+value, line, "GET k")
			}
			p.DoPipelined("SET k 10", "INCRBY k "+value, "DECRBY k "+value, "GET k", "DEL k", "INCRBY k "+value,
				"DEL k", "DECRBY k "+value, "GET k")
		}
		p.Do("SET k 1 EX 100", "INCR k", "INCRBYFLOAT k 1.5")
		p.DoApprox(1000, "PTTL k")
	})
}

func TestIncrbyfloat(t *testing.T) {
	both(t, func(p *pair) {
		values := []string{
			"0", "-0", "0.0", "-0.0", "1", "-1", "+5", ".5", "5.", ".", "-.5", "1e3", "1E3", "1e+3", "1e-3", "1e", "e3",
			"1e400", "1e4932", "1e4933", "-1e4932", "1e5000", "1e-400",
			"1e-4932", "1e-4950", "1e-4951", "1e-4952", "1e-5000", "inf", "-inf", "+inf", "INF", "Infinity",
			"-infinity", "infinit", "nan", "NaN", "-nan", "nan(1)", "0x10", "-0x10",
			"0x1p3", "0x1.8", "0x", "0x1p", "1p3", "0b1", "0o7", "1_0", `""`, `" 5"`, `"5 "`, `"5\x00"`, "0.1", "0.2",
			"0.3", "1.5", "3.0e3", "200.0", "3.14159265358979323846", "17179869184",
			"9223372036854775807", "9223372036854775808", "18446744073709551616", "123456789.123456789123456789",
			"0.00000000000000001", "0.000000000000000001", "0.00000000000000000049", "x",
		}
		for _, v := range values {
			p.DoPipelined("DEL k", "INCRBYFLOAT k "+v, "GET k", "INCRBYFLOAT k 0.1", "INCRBYFLOAT k 0.2", "SET k 10.5",
				"INCRBYFLOAT k "+v, "INCRBYFLOAT k -1",
				"SET k "+v, "INCRBYFLOAT k 0", "INCRBYFLOAT k "+v, "GET k")
		}
	})
}

// TestIncrbyfloat_Random adds random numbers of many magnitudes.
func TestIncrbyfloat_Random(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(1, uint64(p.proto)))
		var lines []string
		for range 1500 {
			switch rng.IntN(8) {
			case 0:
				lines = append(lines, "DEL f")
			case 1:
				lines = append(lines, fmt.Sprintf("SET f %d.%d", rng.Int64(), rng.Uint32()))
			case 2:
				lines = append(lines, fmt.Sprintf("INCRBYFLOAT f %de%d", rng.Int64()-rng.Int64(), rng.IntN(40)-20))
			case 3:
				lines = append(lines, fmt.Sprintf("INCRBYFLOAT f %v", rng.NormFloat64()))
			case 4:
				lines = append(lines, fmt.Sprintf("INCRBYFLOAT f %x", rng.ExpFloat64()*1e6))
			default:
				lines = append(lines, fmt.Sprintf("INCRBYFLOAT f %d.%02d", rng.IntN(1000)-500, rng.IntN(100)))
			}
		}
		p.DoPipelined(lines...)
	})
}
