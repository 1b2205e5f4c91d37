package geo

import "math"

// This file has a sine, a cosine and an arcsine whose results are the same to
// the last bit on every machine. Package math does not guarantee that: it has
// separate implementations for some processors, and on others, Go fuses
// products with sums. Distances are stored (STOREDIST), compared and returned
// to clients, so all nodes must compute the same distances.
//
// The functions compute with more bits than a float64 has and round once at the
// end. The error before that rounding is less than 2^-73 of the result. The
// result is therefore the float64 that is closest to the true value, except in
// about one case in a million. In these cases too, the result is the same on
// every machine. The code uses only sums, rounded products, quotients, square
// roots and math.FMA, which rounds once on every machine, in software if
// necessary.
//
// For a few arguments in a thousand, the C library that Redis uses returns the
// float64 that is second closest to the true value. Which arguments these are
// depends on the processor.

// wide is the sum of two numbers: hi is the float64 closest to the sum, and lo
// is the rest.
type wide struct{ hi, lo float64 }

// wideSum returns a+b (Knuth's TwoSum).
func wideSum(a, b float64) wide {
	s := a + b
	t := s - a
	return wide{s, (a - (s - t)) + (b - t)}
}

// quickSum returns a+b. The absolute value of a must not be less than that of b
// (Dekker).
func quickSum(a, b float64) wide {
	s := a + b
	return wide{s, b - (s - a)}
}

// wideProduct returns a*b.
func wideProduct(a, b float64) wide {
	p := float64(a * b)
	return wide{p, math.FMA(a, b, -p)}
}

// plus returns x+y.
func (x wide) plus(y wide) wide {
	s := wideSum(x.hi, y.hi)
	return quickSum(s.hi, s.lo+(x.lo+y.lo))
}

// times returns x*y.
func (x wide) times(y wide) wide {
	p := wideProduct(x.hi, y.hi)
	return quickSum(p.hi, p.lo+(float64(x.hi*y.lo)+float64(x.lo*y.hi)))
}

func (x wide) minus() wide { return wide{-x.hi, -x.lo} }

// These three parts add up to π/2. The first two together have the precision of
// a wide.
const (
	halfPi     = 1.57079632679489661923
	halfPiRest = 6.12323399573676603587e-17
	halfPiLast = -1.4973849048591698e-33
)

// taylor has the coefficients of a power series in the square of x: the series
// of sin(x)/x or the series of cos(x). Twelve terms suffice for x up to π/4.
type taylor [12]wide

// taylorWide is the number of terms that need more bits than a float64 has.
const taylorWide = 4

// newTaylor returns 1/n!, -1/(n+2)!, 1/(n+4)!, …
func newTaylor(n int) (t taylor) {
	f := 1.0 // (n+2k)!, exact up to 22!
	for k := range t {
		inverse := wide{hi: 1 / f}
		inverse.lo = math.FMA(-inverse.hi, f, 1) / f
		if t[k] = inverse; k%2 == 1 {
			t[k] = inverse.minus()
		}
		f = float64(f * float64((n+2*k+1)*(n+2*k+2)))
	}
	return t
}

var sines, cosines = newTaylor(1), newTaylor(0)

// near returns the sum of the terms from number k on, divided by z^k, with the
// precision of a float64. z is the square of x.
func (t *taylor) near(z float64, k int) float64 {
	p := t[len(t)-1].hi
	for i := len(t) - 2; i >= k; i-- {
		p = t[i].hi + float64(p*z)
	}
	return p
}

func (t *taylor) at(x wide) wide {
	z := x.times(x)
	p := wide{hi: t.near(z.hi, taylorWide)}
	for k := taylorWide - 1; k >= 0; k-- {
		q := p.times(z)
		s := quickSum(t[k].hi, q.hi) // each term is larger than the sum of all that follow
		p = quickSum(s.hi, s.lo+(t[k].lo+q.lo))
	}
	return p
}

// shiftedSine returns sin(x + angles*π/2). x must be between -π and π.
func shiftedSine(x float64, angles int) float64 {
	n := math.Round(x / halfPi) // at most 2, so the products below are exact
	r := wideSum(x, float64(-n*halfPi))
	r = r.plus(wideSum(float64(-n*halfPiRest), float64(-n*halfPiLast)))
	var y wide
	if angles += int(n); angles&1 == 0 {
		y = sines.at(r).times(r)
	} else {
		y = cosines.at(r)
	}
	if angles&2 != 0 {
		y = y.minus()
	}
	return y.hi
}

func sin(x float64) float64 { return shiftedSine(x, 0) }
func cos(x float64) float64 { return shiftedSine(x, 1) }

// asin returns the arcsine of a number between 0 and 1. It treats a number that
// exceeds 1 because of rounding as 1.
func asin(x float64) float64 {
	if x <= 0.5 {
		return arc(wide{hi: x}).hi
	}
	// sin²(π/4 - y/2) = (1 - sin y)/2
	z := (1 - min(x, 1)) / 2 // exact
	y := wide{hi: math.Sqrt(z)}
	if y.hi > 0 {
		y.lo = math.FMA(-y.hi, y.hi, z) / (y.hi + y.hi)
		y = arc(y)
	}
	return wide{halfPi, halfPiRest}.plus(wide{-y.hi - y.hi, -y.lo - y.lo}).hi
}

// arc returns the arcsine of a number between 0 and 0.5. It computes the first
// terms of the series, whose sum is accurate to 1e-4, and then applies Newton's
// method twice. The second time, it uses all bits and also the next term of the
// method.
func arc(x wide) wide {
	z := float64(x.hi * x.hi)
	y := 1.0/6 + float64(z*(3.0/40+float64(z*(15.0/336))))
	y = x.hi + float64(x.hi*float64(z*y))
	z = float64(y * y)
	y += (x.hi - float64(y*sines.near(z, 0))) / cosines.near(z, 0)
	w := wide{hi: y}
	s, c := sines.at(w).times(w), cosines.near(float64(y*y), 0)
	d := x.plus(s.minus())
	step := d.hi / c
	step += float64(float64(step*step)*s.hi) / (c + c)
	return quickSum(y, step)
}
