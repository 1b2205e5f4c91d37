package compat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestGeoadd(t *testing.T) {
	both(t, func(p *pair) {
		for _, lon := range []string{"13.361389", "-180", "180", "180.0000001", "-180.1", "0", "-0", "1e-300", "0x10",
			"inf", "-inf", "nan", "x", `""`, "1e308", "179.99999999999999", " 1"} {
			for _, lat := range []string{"38.115556", "85.05112878", "-85.05112878", "85.0511287800001", "-90", "0",
				"inf", "x", "85.05112877", "-85.05112877999999"} {
				p.Do("DEL g", "GEOADD g "+lon+" "+lat+" m", "ZSCORE g m", "GEOPOS g m", "GEOHASH g m",
					"ZRANGE g 0 -1 WITHSCORES")
			}
		}
		for _, o := range []string{"", " NX", " XX", " CH", " NX XX", " XX CH", " nx ch", " NX CH CH", " CH CH", " FOO",
			" GT", " INCR"} {
			for _, items := range []string{"1 1 a", "2 2 a", "1 1 a 2 2 b", "1 1 a 2 2", "1 1", "", "x 1 a",
				"1 1 a 181 2 b", "1 1 a 1 x b"} {
				p.Do("DEL g", "GEOADD g"+o+" "+items, "ZRANGE g 0 -1 WITHSCORES", "GEOADD g 1 1 a 5 5 c",
					"GEOADD g"+o+" "+items, "ZRANGE g 0 -1 WITHSCORES")
			}
		}
		p.Do("SET k v", "GEOADD k 1 1 a", "GEOADD k 181 1 a", "GEOADD k NX XX 1 1 a", "EXPIRE g 100", "GEOADD g 7 7 d",
			"TTL g", "TYPE g", "OBJECT ENCODING g", "COMMAND GETKEYS GEOADD g 1 1 a")
	})
}

func TestGeo(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
			"GEOADD Sicily 13.583333 37.316667 Agrigento 0 0 zero 180 85.05112878 end -180 -85.05112878 begin",
			`GEOADD Sicily 2 2 "" 3 3 "a\x00b"`, "SET k v",
			"ZADD odd -1 minus -1e300 low -inf lowest inf highest 1e300 high 1.5 half 4503599627370495.5 more "+
				"4503599627370496 over 9007199254740992 far 18446744073709551615 all 9223372036854775808 sign 0 none")
		for _, key := range []string{"Sicily", "none", "k"} {
			p.Do("GEOPOS "+key, "GEOHASH "+key, "GEOPOS "+key+" Palermo none Catania",
				"GEOHASH "+key+" Palermo none zero begin end", `GEOHASH `+key+` "" "a\x00b"`,
				"GEODIST "+key+" Palermo Catania", "GEODIST "+key+" Palermo none", "GEODIST "+key+" none Palermo",
				"GEODIST "+key+" zero zero", "GEODIST "+key+" begin end", "GEODIST "+key+" begin zero KM")
			for _, unit := range []string{"m", "km", "ft", "mi", "M", "Km", "FT", "mI", "x", `""`, "m m"} {
				p.Do("GEODIST " + key + " Palermo Catania " + unit)
			}
		}
		for _, a := range []string{"minus", "low", "lowest", "highest", "high", "half", "more", "over", "far", "all",
			"sign", "none"} {
			p.Do("GEOPOS odd "+a, "GEOHASH odd "+a,
				"GEOSEARCH odd FROMMEMBER "+a+" BYRADIUS 100000 km WITHDIST WITHHASH WITHCOORD",
				"GEORADIUSBYMEMBER odd "+a+" 0 m WITHDIST WITHHASH WITHCOORD",
				"GEOSEARCH odd FROMMEMBER "+a+" BYBOX 1000 1000 km WITHDIST ASC")
			for _, b := range []string{"minus", "highest", "half", "over", "none", "nokey"} {
				p.Do("GEODIST odd " + a + " " + b)
			}
		}
		p.DoError("GEOADD g 1 1", "GEODIST g a", "GEOHASH", "GEOPOS", "GEORADIUS g 1 1 1", "GEORADIUS_RO g 1 1 1",
			"GEORADIUSBYMEMBER g a 1", "GEORADIUSBYMEMBER_RO g a 1", "GEOSEARCH g FROMMEMBER a BYRADIUS 1",
			"GEOSEARCHSTORE d g FROMMEMBER a BYRADIUS 1")
		p.Do("MULTI", "GEOADD m 1 1 a", "GEOPOS m a", "GEODIST m a a",
			"GEOSEARCH m FROMMEMBER a BYRADIUS 1 m WITHCOORD", "EXEC",
			`EVAL "return redis.call('geopos','Sicily','Palermo','none')" 0`,
			`EVAL "redis.setresp(3) local p = redis.call('geopos','Sicily','Palermo') return {tostring(p[1][1].double), redis.call('geodist','Sicily','Palermo','Catania')}" 0`, `EVAL_RO "return redis.call('geosearch','Sicily','fromlonlat','15','37','byradius','200','km','withdist','withcoord','desc')" 0`)
		p.Do("COMMAND GETKEYS GEORADIUS k 1 1 1 m", "COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a",
			"COMMAND GETKEYS GEORADIUS k 1 1 1 m storedist a STORE b",
			"COMMAND GETKEYSANDFLAGS GEORADIUS k 1 1 1 m storedist a ASC STORE b",
			"COMMAND GETKEYSANDFLAGS GEORADIUSBYMEMBER k m 1 m STORE b",
			"COMMAND GETKEYS GEORADIUSBYMEMBER k STORE 1 m", "COMMAND GETKEYS GEORADIUS k 1 1 1 m ASC STORE",
			"COMMAND GETKEYSANDFLAGS GEOSEARCHSTORE a b FROMMEMBER m BYRADIUS 1 m",
			"COMMAND GETKEYS GEORADIUS_RO k 1 1 1 m STORE a")
	})
}

func TestGeosearch(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 13.583333 37.316667 Agrigento 15.5 "+
			"38.2 Messina 15.5 38.2 Again 12.5 41.9 Rome", "SET k v", "ZADD z 1 x")
		const none = "DEL d"
		for _, key := range []string{"g", "none", "k", "z"} {
			for _, o := range []string{"", " ASC", " DESC", " COUNT 2", " COUNT 2 DESC", " COUNT 2 ANY",
				" COUNT 2 ANY DESC", " COUNT 1 ANY ASC", " COUNT 100", " ANY", " COUNT", " COUNT 0", " COUNT -1",
				" COUNT x", " COUNT 9223372036854775807", " COUNT 9223372036854775808", " ANY COUNT 1", " WITHDIST",
				" WITHCOORD", " WITHHASH", " WITHDIST WITHCOORD WITHHASH ASC", " withhash withdist desc", " ASC DESC",
				" FOO", " STORE d", " STOREDIST d", " STORE", " STOREDIST", " STORE d STOREDIST e",
				" STOREDIST e STORE d", " STORE d WITHDIST", " STORE d COUNT 1", " STOREDIST d COUNT 1 DESC",
				" WITHHASH STOREDIST d", " BYRADIUS 1 m", " FROMLONLAT 1 1"} {
				p.DoPipelined("SET d x EX 100", "GEORADIUS "+key+" 15 37 200 km"+o,
					"GEORADIUS_RO "+key+" 15 37 200 km"+o, "TYPE d", "TTL d", "ZRANGE d 0 -1", none,
					"GEORADIUSBYMEMBER "+key+" Catania 200 km"+o, "ZRANGE d 0 -1", "ZRANGE e 0 -1",
					"GEORADIUSBYMEMBER_RO "+key+" Catania 200 km"+o,
					"GEOSEARCH "+key+" FROMMEMBER Catania BYRADIUS 200 km"+o,
					"GEOSEARCH "+key+" BYBOX 400 400 km FROMLONLAT 15 37"+o, "DEL d e",
					"GEOSEARCHSTORE d "+key+" FROMLONLAT 15 37 BYBOX 400 400 km"+o, "ZRANGE d 0 -1", "TYPE d",
					"GEOSEARCHSTORE d "+key+" FROMMEMBER Catania BYRADIUS 100 km"+o, "ZRANGE d 0 -1", "DEL d e")
			}
			for _, where := range []string{"x 37 200 km", "15 x 200 km", "181 37 200 km", "15 86 200 km", "15 37 -1 km",
				"15 37 x km", "15 37 200 x", "15 37 0 m", "15 37 inf m", "15 37 1e300 km", "15 37 nan m",
				"15 37 1e-300 m", "15 37 0x10 km", "-180 -85.05112878 1 m", "180 85.05112878 1000 km"} {
				p.Do("GEORADIUS "+key+" "+where, "GEORADIUS_RO "+key+" "+where+" WITHDIST")
			}
			for _, where := range []string{"Catania 200 x", "Catania -1 km", "Catania x km", "nobody 200 km",
				"nobody x x", "Palermo 0 m", "Messina 0 m", "Again 1 ft"} {
				p.Do("GEORADIUSBYMEMBER "+key+" "+where, "GEORADIUSBYMEMBER_RO "+key+" "+where+" WITHDIST")
			}
			for _, where := range []string{"FROMMEMBER Catania FROMMEMBER Palermo BYRADIUS 10 km",
				"FROMLONLAT 15 37 FROMLONLAT 13 38 BYRADIUS 100 km",
				"FROMMEMBER Catania FROMLONLAT 15 37 BYRADIUS 1 km",
				"FROMLONLAT 15 37 FROMMEMBER Catania BYRADIUS 1 km", "FROMMEMBER nobody BYRADIUS 1 km",
				"FROMLONLAT 15 37 FROMMEMBER nobody", "BYRADIUS 1 km BYBOX 1 1 km FROMMEMBER Catania",
				"BYBOX 1 1 km BYRADIUS 1 km FROMMEMBER Catania", "BYRADIUS 1 km BYRADIUS 100 km FROMMEMBER Catania",
				"BYBOX 1 1 km BYBOX 100 100 km FROMMEMBER Catania", "BYRADIUS 1 km ASC ASC",
				"FROMMEMBER Catania ASC ASC ASC", "FROMMEMBER Catania BYRADIUS -1 km",
				"FROMMEMBER Catania BYRADIUS x km", "FROMMEMBER Catania BYRADIUS 1 x",
				"FROMMEMBER Catania BYBOX x 1 km", "FROMMEMBER Catania BYBOX 1 x km", "FROMMEMBER Catania BYBOX x x km",
				"FROMMEMBER Catania BYBOX -1 1 km", "FROMMEMBER Catania BYBOX 1 -1 km",
				"FROMMEMBER Catania BYBOX -1 x km", "FROMMEMBER Catania BYBOX 1 1 x", "FROMMEMBER Catania BYBOX 1 1",
				"FROMMEMBER Catania BYBOX 0 0 m", "FROMMEMBER Catania BYBOX inf inf m",
				"FROMMEMBER Catania BYBOX inf 1 m", "FROMMEMBER Catania BYBOX 1 inf km", "FROMLONLAT 15 BYRADIUS 1 m",
				"FROMLONLAT 15 37 BYRADIUS 1 m FROMMEMBER", "FROMLONLAT 181 37 BYRADIUS 1 m",
				"FROMLONLAT x 37 BYRADIUS 1 m", "STOREDIST FROMLONLAT 15 37 BYRADIUS 300 km",
				"FROMLONLAT 15 37 BYRADIUS 300 km STOREDIST STOREDIST", "FROMLONLAT 15 37 BYRADIUS 300 km WITHCOORD"} {
				p.Do("GEOSEARCH "+key+" "+where, "GEOSEARCHSTORE d "+key+" "+where, "ZRANGE d 0 -1", none)
			}
		}
		p.Do("GEOSEARCHSTORE g g FROMLONLAT 15 37 BYRADIUS 300 km COUNT 3", "ZRANGE g 0 -1 WITHSCORES",
			"GEORADIUS g 15 37 300 km STORE g", "ZRANGE g 0 -1 WITHSCORES", "OBJECT ENCODING g",
			"GEORADIUS g 90 0 1 m STORE g", "EXISTS g")
	})
}

// geo draws positions and search areas, also near the poles, the date line and
// the corners of cells.
type geo struct{ rng *rand.Rand }

func (g geo) near(most float64) float64 {
	switch g.rng.IntN(8) {
	case 0:
		return most - math.Abs(g.rng.NormFloat64())*most/1000
	case 1:
		return -most + math.Abs(g.rng.NormFloat64())*most/1000
	case 2:
		return []float64{most, -most, 0, most / 2, -most / 2, most / 4}[g.rng.IntN(6)]
	case 3, 4: // positions close to each other
		return most/8 + g.rng.NormFloat64()*most/2000
	}
	return (g.rng.Float64()*2 - 1) * most
}

func (g geo) place() string {
	lon, lat := g.near(180), g.near(85.05112878)
	return fmt.Sprint(min(max(lon, -180), 180), " ", min(max(lat, -85.05112878), 85.05112878))
}

func (g geo) length() string {
	n := math.Exp(g.rng.Float64()*18) / 10
	switch g.rng.IntN(20) {
	case 0:
		n = 0
	case 1:
		n *= 1e4
	}
	return fmt.Sprint(n)
}

func (g geo) unit() string { return []string{"m", "m", "km", "ft", "mi"}[g.rng.IntN(5)] }

func (g geo) shape() string {
	if g.rng.IntN(2) == 0 {
		return "BYRADIUS " + g.length() + " " + g.unit()
	}
	return "BYBOX " + g.length() + " " + g.length() + " " + g.unit()
}

// compareMetres compares replies with distances. The rounding errors of sines
// in the C library that Redis uses depend on the processor. So a distance may
// differ by one unit of its last digit. A distance near half of the Earth's
// circumference may differ by more, because a rounding error of 1e-16 changes
// it by 20 cm. compareMetres reports whether the replies are equal.
func (p *pair) compareMetres(line, redis, holdfast string) bool {
	p.t.Helper()
	if redis == holdfast {
		return true
	}
	a, b := strings.Split(redis, "\r\n"), strings.Split(holdfast, "\r\n")
	for i := range a {
		if len(a) != len(b) || a[i] == b[i] {
			continue
		}
		x, err1 := strconv.ParseFloat(strings.TrimPrefix(a[i], ","), 64)
		y, err2 := strconv.ParseFloat(strings.TrimPrefix(b[i], ","), 64)
		if err1 == nil && err2 == nil && math.Abs(x-y) < max(1.001e-4, 2e-8*x) {
			a[i] = b[i]
			if i > 0 && strings.HasPrefix(a[i-1], "$") { // the length of the text
				a[i-1] = b[i-1]
			}
		}
	}
	p.compare(line, strings.Join(a, "\r\n"), strings.Join(b, "\r\n"))
	return false
}

// doMetres sends a pipeline to both servers. It returns the number of replies
// that differ.
func (p *pair) doMetres(lines []string) (off int) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i, line := range lines {
		if !p.compareMetres(line, redis[i], holdfast[i]) {
			off++
		}
	}
	if p.t.Failed() {
		p.t.Fatalf("seed %d:\n%s", *randomSeed, strings.Join(lines, "\n"))
	}
	return off
}

// TestRandom_Geo uses members all over the world, some of them at the same
// position.
func TestRandom_Geo(t *testing.T) {
	both(t, func(p *pair) {
		g := geo{rand.New(rand.NewPCG(*randomSeed, 600+uint64(p.proto)))}
		member := func() string { return "m" + strconv.Itoa(g.rng.IntN(400)) }
		off, total := 0, 0
		for range *randomRuns {
			lines := []string{"FLUSHALL"}
			for range 20 {
				line := "GEOADD g"
				for range 1 + g.rng.IntN(20) {
					line += " " + g.place() + " " + member()
				}
				lines = append(lines, line)
			}
			lines = append(lines, "ZRANGE g 0 -1 WITHSCORES")
			for range 100 {
				a, b := member(), member()
				lines = append(lines, "GEODIST g "+a+" "+b+" "+g.unit(), "GEOPOS g "+a+" "+b, "GEOHASH g "+a+" "+b)
				from := "FROMLONLAT " + g.place()
				if g.rng.IntN(2) == 0 {
					from = "FROMMEMBER " + a
				}
				options := []string{"", "", " ASC", " DESC", " COUNT 1000",
					" COUNT " + strconv.Itoa(1+g.rng.IntN(9)) + " ANY", " COUNT 5 ANY ASC"}[g.rng.IntN(7)]
				with := []string{"", " WITHDIST", " WITHCOORD WITHDIST WITHHASH"}[g.rng.IntN(3)]
				lines = append(lines, "GEOSEARCH g "+from+" "+g.shape()+options+with,
					"GEOSEARCHSTORE d g "+from+" "+g.shape()+options, "ZRANGE d 0 -1 WITHSCORES",
					"GEORADIUSBYMEMBER g "+b+" "+g.length()+" "+g.unit()+options+with,
					"GEORADIUS_RO g "+g.place()+" "+g.length()+" "+g.unit()+options+with)
			}
			off += p.doMetres(lines)
			total += len(lines)
		}
		if off > total/1000 {
			t.Errorf("seed %d: %d of %d replies have distances that differ from those of Redis", *randomSeed, off,
				total)
		}
	})
}

// TestRandom_GeoDistances stores distances, because a stored distance shows all
// its digits. It tests random pairs of positions, and pairs that are half of
// the circumference apart.
func TestRandom_GeoDistances(t *testing.T) {
	both(t, func(p *pair) {
		g := geo{rand.New(rand.NewPCG(*randomSeed, 700+uint64(p.proto)))}
		off, total := 0, 0
		for range *randomRuns {
			lines := []string{"FLUSHALL"}
			for i := range 100 {
				lines = append(lines, fmt.Sprintf("GEOADD g %s m%d", g.place(), i))
				lon, lat := g.rng.Float64()*180, g.near(85)
				lines = append(lines, fmt.Sprintf("GEOADD g %v %v a%d %v %v b%d", lon, lat, i, lon-180, -lat, i),
					fmt.Sprintf("GEODIST g a%d b%d", i, i))
			}
			for i := range 20 {
				lines = append(lines, fmt.Sprintf("GEOSEARCHSTORE d g FROMMEMBER m%d BYBOX 50000 50000 km STOREDIST",
					i))
				for j := range 100 {
					lines = append(lines, fmt.Sprintf("ZSCORE d m%d", j))
				}
				lines = append(lines, fmt.Sprintf("GEORADIUS g %s 5000 mi STOREDIST d", g.place()),
					fmt.Sprintf("ZSCORE d m%d", i))
			}
			off += p.doMetres(lines)
			total += len(lines)
		}
		if off > total/50 {
			t.Errorf("seed %d: %d of %d distances differ from those of Redis", *randomSeed, off, total)
		}
	})
}

// TestGeo_Differences checks the permitted differences.
func TestGeo_Differences(t *testing.T) {
	both(t, func(p *pair) {
		for _, m := range strings.Split("hcagbfied", "") {
			p.setup("GEOADD same 1 1 " + m)
		}
		p.Do("GEOSEARCH same FROMLONLAT 1 1 BYRADIUS 1 km ASC",
			"GEOSEARCH same FROMLONLAT 1 1 BYRADIUS 1 km COUNT 5 ANY",
			"GEOSEARCH same FROMLONLAT 1 1 BYRADIUS 1 km COUNT 3", "geosearch same fromlonlat 1 1 asc desc asc",
			"COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a STORE b")
	})
}
