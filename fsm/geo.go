package fsm

import (
	"math"
	"math/big"
	"strconv"
)

var geoCommands = []Command{
	{Name: "geoadd", Arity: -5, Flags: Write | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"}, Group: "geo", Since: "3.2.0", Complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.", Syntax: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]", Doc: "Add one or more geospatial items in the geospatial index represented using a sorted set", History: []Change{{"6.2.0", "Added the `CH`, `NX` and `XX` options."}}, Run: geoadd},
	{Name: "geodist", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "geo", Since: "3.2.0", Complexity: "O(log(N))", Syntax: "key member1 member2 [M | KM | FT | MI]", Doc: "Returns the distance between two members of a geospatial index", Run: geodist},
	{Name: "geohash", Arity: -2, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "geo", Since: "3.2.0", Complexity: "O(log(N)) for each member requested, where N is the number of elements in the sorted set.", Syntax: "key member [member ...]", Doc: "Returns members of a geospatial index as standard geohash strings", Run: geohash},
	{Name: "geopos", Arity: -2, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "geo", Since: "3.2.0", Complexity: "O(N) where N is the number of members requested.", Syntax: "key member [member ...]", Doc: "Returns longitude and latitude of members of a geospatial index", Run: geopos},
}

const msgGeoUnit = "ERR unsupported unit provided. please use M, KM, FT, MI"

// parsePlace reads a longitude and a latitude.
func parsePlace(args [][]byte) (p place, fail Reply) {
	var ok1, ok2 bool
	p.lon, ok1 = parseScore(args[0])
	p.lat, ok2 = parseScore(args[1])
	switch {
	case !ok1 || !ok2:
		return p, Error(msgNotFloat)
	case !p.valid():
		return p, Error("ERR invalid longitude,latitude pair " + sixDecimals(p.lon) + "," + sixDecimals(p.lat))
	}
	return p, Null
}

// sixDecimals prints as C's %f.
func sixDecimals(f float64) string {
	if math.IsInf(f, 0) {
		return FormatDouble(f)
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

// parseUnit returns how many metres a unit has.
func parseUnit(arg []byte) (metres float64, fail Reply) {
	switch {
	case fold(arg, "M"):
		return 1, Null
	case fold(arg, "KM"):
		return 1000, Null
	case fold(arg, "FT"):
		return 0.3048, Null
	case fold(arg, "MI"):
		return 1609.34, Null
	}
	return 0, Error(msgGeoUnit)
}

func geoadd(c *Ctx, args [][]byte) Reply {
	var p zaddOptions
	i := 2
	for i < len(args) && p.condition(args[i]) {
		i++
	}
	items := args[i:]
	if len(items) == 0 || len(items)%3 != 0 || p.nx && p.xx {
		return Error(msgSyntax)
	}
	scores, members := make([]float64, 0, len(items)/3), make([][]byte, 0, len(items)/3)
	for ; len(items) > 0; items = items[3:] {
		at, fail := parsePlace(items)
		if fail.IsError() {
			return fail
		}
		scores, members = append(scores, at.score()), append(members, items[2])
	}
	return c.putScores(args[1], scores, members, p)
}

// placeIn returns where a member is; o is a sorted set or nil.
func placeIn(o *object, member []byte) (p place, ok bool) {
	if o == nil {
		return p, false
	}
	score, ok := o.coll.score.get(viewString(member))
	return placeOf(score), ok
}

// metresReply is a distance as Redis prints it, never a double.
func metresReply(d float64) Reply { return Bulk(strconv.FormatFloat(d, 'f', 4, 64)) }

func geodist(c *Ctx, args [][]byte) Reply {
	unit := 1.0
	switch {
	case len(args) > 5:
		return Error(msgSyntax)
	case len(args) == 5:
		var fail Reply
		if unit, fail = parseUnit(args[4]); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	a, ok1 := placeIn(o, args[2])
	b, ok2 := placeIn(o, args[3])
	if !ok1 || !ok2 {
		return Null
	}
	return metresReply(distance(a, b) / unit)
}

// geoMembers answers for each member that is asked for.
func (c *Ctx) geoMembers(args [][]byte, none Reply, of func(p place) Reply) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	list := make([]Reply, len(args)-2)
	for i, member := range args[2:] {
		list[i] = none
		if p, ok := placeIn(o, member); ok {
			list[i] = of(p)
		}
	}
	return Array(list)
}

func geohash(c *Ctx, args [][]byte) Reply {
	return c.geoMembers(args, Null, func(p place) Reply { return Bulk(p.geohash()) })
}

func geopos(c *Ctx, args [][]byte) Reply { return c.geoMembers(args, NullArray, place.reply) }

// reply prints a place with 17 decimals, the zeros at the end left out.
func (p place) reply() Reply {
	return Array([]Reply{DecimalDouble(formatLongDouble(big.NewFloat(p.lon))), DecimalDouble(formatLongDouble(big.NewFloat(p.lat)))})
}
