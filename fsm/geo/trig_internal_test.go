package geo

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const (
	exactBits = 300
	trigRuns  = 2000
)

func exact(x float64) *big.Float { return new(big.Float).SetPrec(exactBits).SetFloat64(x) }

// exactSin sums the series that begins with x^n/n!, with 300 bits: the sine if
// n is 1, or the cosine if n is 0.
func exactSin(x *big.Float, n int64) *big.Float {
	z := new(big.Float).SetPrec(exactBits).Mul(x, x)
	term := exact(1)
	if n == 1 {
		term.Set(x)
	}
	total := new(big.Float).SetPrec(exactBits).Set(term)
	for k := n; k < 120; k += 2 {
		term.Mul(term, z)
		term.Quo(term, exact(-float64((k+1)*(k+2))))
		total.Add(total, term)
	}
	return total
}

func round(x *big.Float) float64 {
	f, _ := x.Float64()
	return f
}

// checkNear reports an error unless got equals want, the float64 closest to the
// true value.
func checkNear(t *testing.T, what string, x, got, want float64) {
	t.Helper()
	if got != want {
		t.Errorf("%s(%v) = %v (%x), want %v (%x)", what, x, got, math.Float64bits(got), want, math.Float64bits(want))
	}
}

// angles returns an angle from about -π to about π. Many of the angles are
// close to a multiple of a right angle.
func angles(rng *rand.Rand) float64 {
	x := (rng.Float64()*2 - 1) * math.Pi
	switch rng.IntN(4) {
	case 0:
		x = math.Ldexp(x, -rng.IntN(60))
	case 1:
		x = math.Float64frombits(math.Float64bits(float64(1+rng.IntN(2))*math.Pi/2) + rng.Uint64N(200) - 100)
	}
	if rng.IntN(2) == 0 {
		return -x
	}
	return x
}

func TestTrig_Sin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range trigRuns {
		x := angles(rng)
		checkNear(t, "sin", x, sin(x), round(exactSin(exact(x), 1)))
		checkNear(t, "cos", x, cos(x), round(exactSin(exact(x), 0)))
	}
	for _, x := range []float64{0, math.Pi, -math.Pi, math.Pi / 2, -math.Pi / 2, math.Pi / 4, 2.5, 1e-300, -1e-9} {
		checkNear(t, "sin", x, sin(x), round(exactSin(exact(x), 1)))
		checkNear(t, "cos", x, cos(x), round(exactSin(exact(x), 0)))
	}
}

func TestTrig_Asin(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range trigRuns {
		x := rng.Float64()
		switch rng.IntN(4) {
		case 0:
			x = math.Ldexp(x, -rng.IntN(60))
		case 1:
			x = 1 - math.Ldexp(x, -rng.IntN(53))
		}
		// Solve sin(y) = x with Newton's method, beginning with a value that is
		// accurate to 50 bits.
		y := exact(math.Asin(x))
		if cos := exactSin(y, 0); x < 1 {
			for range 4 {
				d := new(big.Float).SetPrec(exactBits).Sub(exact(x), exactSin(y, 1))
				y.Add(y, d.Quo(d, cos))
				cos = exactSin(y, 0)
			}
		}
		checkNear(t, "asin", x, asin(x), round(y))
	}
	for x, want := range map[float64]float64{0: 0, 1: math.Pi / 2, 1 + 0x1p-52: math.Pi / 2, 0.5: math.Pi / 6} {
		checkNear(t, "asin", x, asin(x), want)
	}
}

// TestTrig_HalfPi checks that each of the three parts is the float64 closest to
// the difference between π/2 and the parts before it.
func TestTrig_HalfPi(t *testing.T) {
	half, _, err := big.ParseFloat("1.5707963267948966192313216916397514420985846996875529104874722961539082031431", 10, exactBits, big.ToNearestEven)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range []float64{halfPi, halfPiRest, halfPiLast} {
		checkNear(t, "part of π/2", float64(i), part, round(half))
		half.Sub(half, exact(part))
	}
}

func BenchmarkTrig(b *testing.B) {
	x := 0.3
	b.Run("sin", func(b *testing.B) {
		for b.Loop() {
			x += sin(x) * 1e-9
		}
	})
	b.Run("asin", func(b *testing.B) {
		for b.Loop() {
			x += asin(x) * 1e-9
		}
	})
	b.Run("asin of more", func(b *testing.B) {
		for y := 0.8; b.Loop(); {
			y += asin(y) * 1e-15
		}
	})
}
